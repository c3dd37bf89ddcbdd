// The page's addresses: `#/`, `#/tasks` and `#/s/{id}`. They live behind the `#`, so that the gateway serves one file for all of them.

import { useSyncExternalStore } from "react";

export type Route = { page: "start" } | { page: "tasks" } | { page: "session"; sessionId: string };

export const TASKS_HREF = "#/tasks";

export function parseRoute(hash: string): Route {
  if (hash === TASKS_HREF) return { page: "tasks" };
  const match = /^#\/s\/([^/?]+)/.exec(hash);
  if (!match) return { page: "start" };
  try {
    return { page: "session", sessionId: decodeURIComponent(match[1]!) };
  } catch {
    return { page: "start" };
  }
}

export function sessionHref(sessionId: string): string {
  return `#/s/${encodeURIComponent(sessionId)}`;
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
