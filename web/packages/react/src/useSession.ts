// A session that a component follows. The connection belongs to an effect and not to the render, so that it is opened once
// and closed for certain.

import { type FeedState, type GatewayClient, SessionFeed, type SharedConnection } from "@acp-gateway/client";
import { useCallback, useEffect, useState, useSyncExternalStore } from "react";

const none = () => null;
const unchanged = () => undefined;

/**
 * The feed of a session, or null: without a session, and before the first effect. `connection` is that of `useSharedConnection`, or
 * null for a stream of its own. The feed is closed with the component, or when an argument changes.
 */
export function useSession(client: GatewayClient, connection: SharedConnection | null, sessionId: string | null): SessionFeed | null {
  const [made, setMade] = useState<{ feed: SessionFeed; sessionId: string } | null>(null);
  useEffect(() => {
    if (sessionId === null) return;
    const feed = new SessionFeed(client, connection, sessionId);
    const retry = () => feed.retryNow();
    setMade({ feed, sessionId });
    addEventListener("online", retry);
    return () => {
      removeEventListener("online", retry);
      feed.close();
    };
  }, [client, connection, sessionId]);
  // After a change of the session, the feed of the previous one stays until the effect.
  return made !== null && made.sessionId === sessionId ? made.feed : null;
}

/**
 * The state of a feed: the folded log, the connection, and whether the log is read to its end. The component renders again at most
 * once a frame. Unchanged parts of the log are the same objects, so that `memo` skips them.
 */
export function useSessionState(feed: SessionFeed): FeedState;
export function useSessionState(feed: SessionFeed | null): FeedState | null;
export function useSessionState(feed: SessionFeed | null): FeedState | null {
  const subscribe = useCallback((listener: () => void) => feed?.subscribe(listener) ?? unchanged, [feed]);
  return useSyncExternalStore<FeedState | null>(subscribe, feed?.state ?? none, none);
}
