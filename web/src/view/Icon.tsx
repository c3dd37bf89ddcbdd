// Line icons, drawn here so that nothing has to be loaded.

import { lookup } from "@acp-gateway/client/read";

const PATHS: Record<string, string> = {
  read: "M2.5 3.5h4a1.5 1.5 0 0 1 1.5 1.5v8a1.5 1.5 0 0 0-1.5-1.5h-4zM13.5 3.5h-4A1.5 1.5 0 0 0 8 5v8a1.5 1.5 0 0 1 1.5-1.5h4z",
  edit: "M10.5 2.8l2.7 2.7L6 12.7l-3.3.6.6-3.3zM9 4.3L11.7 7",
  delete: "M3 4.5h10M6.5 4.5v-1.5h3v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5",
  move: "M2.5 8h11M10 4.5L13.5 8 10 11.5",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3L13.5 13.5",
  execute: "M3 4.5L6.5 8 3 11.5M8 12h5",
  think: "M5.5 10.5a4 4 0 1 1 5 0v1.5h-5zM6.5 14h3",
  fetch: "M8 2.5v7M5 7l3 3 3-3M3 13h10",
  switch_mode: "M3 5.5h9L9.5 3M13 10.5H4L6.5 13",
  agent: "M8 7a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3 14a5 5 0 0 1 10 0",
  other: "M8 4.5v.01M8 8v.01M8 11.5v.01",
  more: "M4 8v.01M8 8v.01M12 8v.01",
  plus: "M8 3v10M3 8h10",
  send: "M8 13V3.5M4 7l4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  close: "M4 4l8 8M12 4l-8 8",
  chevron: "M6 4l4 4-4 4",
  down: "M8 3v10M4 9l4 4 4-4",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  folder: "M2 4.5A1 1 0 0 1 3 3.5h3l1.5 1.5H13a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1H3a1 1 0 0 1-1-1z",
  up: "M8 13V3.5M4 7l4-4 4 4",
  check: "M3.5 8.5l3 3 6-7",
  key: "M6 9.5a3 3 0 1 1 2.6-1.5L13.5 8v2.5M11 8v2",
};

export function Icon({ name, className }: { name: string; className?: string }) {
  const path = lookup(PATHS, name) ?? PATHS["other"];
  return (
    <svg className={className ? `icon ${className}` : "icon"} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={path} fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round" strokeLinejoin="round" />
    </svg>
  );
}
