// The list of sessions. The page reloads it after each of its actions, when the window becomes visible, and
// periodically. A hidden page reloads it only on request, for example for notifications.

import { useCallback, useEffect, useRef, useState } from "react";
import type { GatewayClient, SessionPage, SessionQuery, SessionSummary } from "@acp-gateway/client";

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
  /** Selects sessions. By default, the list has up to 200. */
  query?: SessionQuery;
  /** Whether a hidden page reloads the list. It must be stable. */
  whileHidden?: () => boolean;
}

/** The list is reloaded every 15 s and when the window gets the focus. */
export function useSessions(client: GatewayClient, { query, whileHidden = never }: SessionListOptions = {}): SessionList {
  const [page, setPage] = useState<SessionPage | null>(null);
  const [error, setError] = useState<unknown>(null);
  const asked = useRef(0);
  // A caller may make the same query for each render.
  const wanted = JSON.stringify(query ?? {});

  const refresh = useCallback(() => {
    const turn = ++asked.current;
    client.sessions({ limit: 200, ...(JSON.parse(wanted) as SessionQuery) }).then(
      (page) => {
        // An answer that was overtaken by a later question is old news.
        if (turn !== asked.current) return;
        setPage(page);
        setError(null);
      },
      (reason: unknown) => {
        if (turn === asked.current) setError(reason);
      },
    );
  }, [client, wanted]);

  useEffect(() => {
    refresh();
    const whenVisible = () => {
      if (!document.hidden || whileHidden()) refresh();
    };
    const timer = setInterval(whenVisible, EVERY_MS);
    addEventListener("focus", refresh);
    document.addEventListener("visibilitychange", whenVisible);
    return () => {
      asked.current += 1;
      clearInterval(timer);
      removeEventListener("focus", refresh);
      document.removeEventListener("visibilitychange", whenVisible);
    };
  }, [refresh, whileHidden]);

  return { sessions: page?.sessions ?? null, nextCursor: page?.nextCursor ?? null, error, refresh };
}
