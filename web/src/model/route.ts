// The page's addresses: `#/`, `#/inbox`, `#/tasks`, `#/admin/{section}`, `#/s/{session}` and `#/s/{session}/t/{turn}`. They live behind the `#`, so that the gateway serves one file for all of them.

import { useSyncExternalStore } from "react";

/** The sections of the page for administrators. */
export const ADMIN_SECTIONS = ["overview", "agents", "storage", "keys", "fleet", "webhooks", "audit", "configuration"] as const;
export type AdminSection = (typeof ADMIN_SECTIONS)[number];

export type Route = { page: "start" } | { page: "tasks" } | { page: "inbox" } | { page: "admin"; section: AdminSection } | { page: "session"; sessionId: string; turn: string | null };

export const TASKS_HREF = "#/tasks";
export const INBOX_HREF = "#/inbox";
export const ADMIN_HREF = "#/admin";

export function parseRoute(hash: string): Route {
  if (hash === TASKS_HREF) return { page: "tasks" };
  if (hash === INBOX_HREF) return { page: "inbox" };
  const admin = /^#\/admin(?:\/([a-z]+))?$/.exec(hash);
  if (admin) return { page: "admin", section: ADMIN_SECTIONS.find((section) => section === admin[1]) ?? "overview" };
  const match = /^#\/s\/([^/?]+)(?:\/t\/([^/?]+))?/.exec(hash);
  if (!match) return { page: "start" };
  try {
    return { page: "session", sessionId: decodeURIComponent(match[1]!), turn: match[2] === undefined ? null : decodeURIComponent(match[2]) };
  } catch {
    return { page: "start" };
  }
}

export function sessionHref(sessionId: string): string {
  return `#/s/${encodeURIComponent(sessionId)}`;
}

export function turnHref(sessionId: string, turn: string): string {
  return `${sessionHref(sessionId)}/t/${encodeURIComponent(turn)}`;
}

/** Whether another page shows this one in a frame without the list of sessions: `?embed=1`. */
export function isEmbedded(): boolean {
  return new URLSearchParams(location.search).get("embed") === "1";
}

export function goTo(href: string): void {
  location.hash = href;
}

export function useRoute(): Route {
  const hash = useSyncExternalStore(subscribe, () => location.hash);
  return parseRoute(hash);
}

function subscribe(listener: () => void): () => void {
  addEventListener("hashchange", listener);
  return () => removeEventListener("hashchange", listener);
}
