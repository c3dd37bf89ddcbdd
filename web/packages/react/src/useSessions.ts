// A list of sessions: those of the user, or those that others share with the user. With a shared connection, its stream brings the changes. Without one, the page reloads the list
// periodically and when the window becomes visible; a hidden page reloads it only on request, for example for notifications.

import { useCallback, useEffect, useMemo, useRef, useState } from "react";
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
  /** Selects sessions. By default, the list has up to 200. With other members than `shared`, the list is reloaded as without a connection. */
  query?: SessionQuery;
  /** The name of the user (`about().principal.id`), or null while it is unknown. It tells the user's own sessions from those of others. */
  user?: string | null;
  /** Whether a hidden page without a connection reloads the list. It must be stable. */
  whileHidden?: () => boolean;
}

/** The list follows the connection. Without one, it is reloaded every 15 s and when the window gets the focus. */
export function useSessions(client: GatewayClient, { connection = null, query, user = null, whileHidden = never }: SessionListOptions = {}): SessionList {
  const [read, setRead] = useState<SessionPage | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [refused, setRefused] = useState<SharedConnection | null>(null);
  const asked = useRef(0);
  const failed = useRef(false);
  /** Changes of both lists, each with the number of the question before it. The answer to that question may be older. */
  const [changes, setChanges] = useState<readonly (ListChange & { turn: number })[]>([]);
  // A caller may make the same query for each render.
  const wanted = JSON.stringify(query ?? {});
  const isShared = query?.shared === true;
  const shared = wanted === (isShared ? '{"shared":true}' : "{}") && connection !== refused ? connection : null;

  const refresh = useCallback(() => {
    const turn = ++asked.current;
    client.sessions({ limit: 200, ...(JSON.parse(wanted) as SessionQuery) }).then(
      (page) => {
        // An answer that was overtaken by a later question is old news.
        if (turn !== asked.current) return;
        setRead(page);
        setChanges((before) => before.filter((change) => change.turn >= turn));
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
        const isOld = ({ session }: ListChange) => told.some((change) => change.session === session);
        setChanges((before) => [...before.filter((change) => !isOld(change)), ...told.map((change) => ({ ...change, turn: asked.current }))]);
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

  const page = useMemo(() => {
    // A summary of the other list removes a session that this one has.
    const own = ({ owner }: SessionSummary) => (user === null ? !isShared : (owner === user) !== isShared);
    const told = changes.map((change) => (change.summary && own(change.summary) ? change : { ...change, summary: null }));
    return read && changedList(read, told);
  }, [read, changes, user, isShared]);

  return { sessions: page?.sessions ?? null, nextCursor: page?.nextCursor ?? null, error, refresh };
}
