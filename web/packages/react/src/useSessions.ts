// The list of sessions. With a shared connection, its stream brings the changes. Without one, the page reloads the list
// periodically and when the window becomes visible; a hidden page reloads it only on request, for example for notifications.

import { useCallback, useEffect, useRef, useState } from "react";
import { changedList, type GatewayClient, type ListChange, type SessionPage, type SessionQuery, type SessionSummary, type SharedConnection } from "@acp-gateway/client";

const never = () => false;
const EVERY_MS = 15_000;

export interface SessionList {
  /** The latest activity first. Null until the first answer. */
  sessions: SessionSummary[] | null;
  /** Of the older sessions, for `client.sessions({ cursor })`. Null if there are none. */
  nextCursor: string | null;
  /** Of the last request, or null. */
  error: unknown;
  refresh(): void;
}

export interface SessionListOptions {
  /** That of `useSharedConnection`, or null. */
  connection?: SharedConnection | null;
  /** Selects sessions. By default, the list has up to 200. The list is then reloaded as without a connection. */
  query?: SessionQuery;
  /** Whether a hidden page without a connection reloads the list. It must be stable. */
  whileHidden?: () => boolean;
}

/** The list follows the connection. Without one, it is reloaded every 15 s and when the window gets the focus. */
export function useSessions(client: GatewayClient, { connection = null, query, whileHidden = never }: SessionListOptions = {}): SessionList {
  const [page, setPage] = useState<SessionPage | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [refused, setRefused] = useState<SharedConnection | null>(null);
  const asked = useRef(0);
  const failed = useRef(false);
  /** Changes that came after the last question. Its answer may be older. */
  const changes = useRef(new Map<string, ListChange>());
  // A caller may make the same query for each render.
  const wanted = JSON.stringify(query ?? {});
  const shared = wanted === "{}" && connection !== refused ? connection : null;

  const refresh = useCallback(() => {
    const turn = ++asked.current;
    changes.current.clear();
    client.sessions({ limit: 200, ...(JSON.parse(wanted) as SessionQuery) }).then(
      (page) => {
        // An answer that was overtaken by a later question is old news.
        if (turn !== asked.current) return;
        setPage(changedList(page, [...changes.current.values()]));
        setError(null);
        failed.current = false;
      },
      (reason: unknown) => {
        if (turn !== asked.current) return;
        setError(reason);
        failed.current = true;
      },
    );
  }, [client, wanted]);

  useEffect(() => {
    refresh();
    return () => void (asked.current += 1);
  }, [refresh]);

  useEffect(() => {
    if (!shared) return;
    const leave = shared.listenToList({
      read: refresh,
      changes: (told) => {
        for (const change of told) changes.current.set(change.session, change);
        setPage((page) => page && changedList(page, told));
      },
      alone: () => setRefused(shared),
    });
    const timer = setInterval(() => failed.current && refresh(), EVERY_MS);
    return () => {
      clearInterval(timer);
      leave();
    };
  }, [refresh, shared]);

  useEffect(() => {
    if (shared) return;
    const whenVisible = () => {
      if (!document.hidden || whileHidden()) refresh();
    };
    const timer = setInterval(whenVisible, EVERY_MS);
    addEventListener("focus", refresh);
    document.addEventListener("visibilitychange", whenVisible);
    return () => {
      clearInterval(timer);
      removeEventListener("focus", refresh);
      document.removeEventListener("visibilitychange", whenVisible);
    };
  }, [refresh, shared, whileHidden]);

  return { sessions: page?.sessions ?? null, nextCursor: page?.nextCursor ?? null, error, refresh };
}
