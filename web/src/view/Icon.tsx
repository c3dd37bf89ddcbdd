// Line icons, drawn here so that nothing has to be loaded.

import { lookup } from "@acp-gateway/client/read";

const PATHS: Record<string, string> = {
  // The kinds of tool calls.
  read: "M2.5 3.5h4A1.5 1.5 0 0 1 8 5v8a1.5 1.5 0 0 0-1.5-1.5h-4zM13.5 3.5h-4A1.5 1.5 0 0 0 8 5v8a1.5 1.5 0 0 1 1.5-1.5h4z",
  edit: "M10.5 3 13 5.5 5.5 13H3v-2.5zM9 4.5 11.5 7",
  delete: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9",
  move: "M2.5 8h11M10 4.5 13.5 8 10 11.5",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM14 14l-3.5-3.5",
  execute: "M2.5 4 6 7.5 2.5 11M8 12h5.5",
  think: "M5.5 10.5a4 4 0 1 1 5 0V12h-5zM6.5 14h3",
  fetch: "M8 2.5V10M4.5 7 8 10.5 11.5 7M3 13.5h10",
  switch_mode: "M3 5.5h9L9.5 3M13 10.5H4L6.5 13",
  other: "M8 4.5v.01M8 8v.01M8 11.5v.01",
  // States.
  waiting: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.5 6v4M9.5 6v4",
  failed: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.5M8 10.8h.01",
  check: "M3 8.5 6.5 12 13 4.5",
  pending: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11z",
  warning: "M8 2.5 14.2 13H1.8zM8 6.5v3M8 11.3h.01",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.8V8l2.2 1.6",
  // Actions and things.
  agent: "M8 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3.5 13.5a4.5 4.5 0 0 1 9 0",
  mode: "M8 2l5 2v4c0 3-2.2 5-5 6-2.8-1-5-3-5-6V4z",
  more: "M4 8v.01M8 8v.01M12 8v.01",
  plus: "M8 3v10M3 8h10",
  send: "M8 13V3M3.5 7.5 8 3l4.5 4.5",
  stop: "M4.5 4.5h7v7h-7z",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  close: "M4 4l8 8M12 4l-8 8",
  chevron: "M6 3.5 10.5 8 6 12.5",
  open: "M3.5 6 8 10.5 12.5 6",
  down: "M8 3v10M3.5 8.5 8 13l4.5-4.5",
  up: "M8 13V3M3.5 7.5 8 3l4.5 4.5",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  folder: "M2 4.5A1.5 1.5 0 0 1 3.5 3h2.8l1.6 1.8h4.6A1.5 1.5 0 0 1 14 6.3v5.2a1.5 1.5 0 0 1-1.5 1.5h-9A1.5 1.5 0 0 1 2 11.5z",
  key: "M6 10.5A2.8 2.8 0 1 0 6 5a2.8 2.8 0 0 0 0 5.5zM8.5 8H14v2.5M11.5 8v2",
  keyboard: "M1.5 4h13v8h-13zM4 6.7h.01M6.7 6.7h.01M9.3 6.7h.01M12 6.7h.01M5 9.5h6",
  settings: "M2.5 5h6M11.5 5h2M2.5 11h2M7.5 11h6M10 6.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM6 12.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3z",
  panel: "M2.5 3h11v10h-11zM10 3v10",
  link: "M6.8 9.2a2.4 2.4 0 0 0 3.4 0l2.3-2.3a2.4 2.4 0 1 0-3.4-3.4l-.7.7M9.2 6.8a2.4 2.4 0 0 0-3.4 0L3.5 9.1a2.4 2.4 0 1 0 3.4 3.4l.7-.7",
  copy: "M5.5 5.5h7v7h-7zM10.5 5.5v-2h-7v7h2",
  wrap: "M2.5 4h11M2.5 8H11a2 2 0 0 1 0 4H8M9.5 10.5 8 12l1.5 1.5M2.5 12H5",
  changes: "M8 2.5v6M5 5.5h6M5 12.5h6",
  undo: "M3 8a5 5 0 1 0 1.5-3.5L3 6M3 2.8V6h3.2",
};

export function Icon({ name, className }: { name: string; className?: string }) {
  const path = lookup(PATHS, name) ?? PATHS["other"];
  return (
    <svg className={className ? `icon icon-${name} ${className}` : `icon icon-${name}`} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={path} />
    </svg>
  );
}
