// A session that a component follows. The connection belongs to an effect and not to the render, so that it is opened once
// and closed for certain.

import { type GatewayClient, SessionFeed, type SharedConnection } from "@acp-gateway/client";
import { useEffect, useState } from "react";

/** The feed of a session, or null before the first effect. Use `useSyncExternalStore(feed.subscribe, feed.state)` with it. */
export function useSession(client: GatewayClient, connection: SharedConnection | null, sessionId: string): SessionFeed | null {
  const [feed, setFeed] = useState<SessionFeed | null>(null);
  useEffect(() => {
    const made = new SessionFeed(client, connection, sessionId);
    const retry = () => made.retryNow();
    setFeed(made);
    addEventListener("online", retry);
    return () => {
      removeEventListener("online", retry);
      made.close();
    };
  }, [client, connection, sessionId]);
  return feed;
}
