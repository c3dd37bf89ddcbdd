// The list of sessions. The page reloads it after each of its actions, when the window becomes visible, and
// periodically. A hidden page reloads it only on request, for example for notifications.

import { useCallback, useEffect, useRef, useState } from "react";
import type { GatewayClient, SessionSummary } from "@acp-gateway/client";

const never = () => false;
const EVERY_MS = 15_000;

export interface SessionList {
  sessions: SessionSummary[] | null;
  error: unknown;
  refresh(): void;
}

/** `whileHidden`: whether a hidden page reloads the list. */
export function useSessions(client: GatewayClient, whileHidden: () => boolean = never): SessionList {
  const [sessions, setSessions] = useState<SessionSummary[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const asked = useRef(0);

  const refresh = useCallback(() => {
    const turn = ++asked.current;
    client.sessions({ limit: 200 }).then(
      (page) => {
        // An answer that was overtaken by a later question is old news.
        if (turn !== asked.current) return;
        setSessions(page.sessions);
        setError(null);
      },
      (reason: unknown) => {
        if (turn === asked.current) setError(reason);
      },
    );
  }, [client]);

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

  return { sessions, error, refresh };
}
