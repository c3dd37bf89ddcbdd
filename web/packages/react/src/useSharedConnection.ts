// The connection that the tabs with the key of a client share.

import type { GatewayClient, SharedConnection } from "@acp-gateway/client";
import { useLayoutEffect, useState } from "react";

export interface Shared {
  client: GatewayClient;
  /** Null if each tab has its own connection. */
  connection: SharedConnection | null;
}

/** Null without a client, and before the first effect. The connection is closed with the component. */
export function useSharedConnection(client: GatewayClient | null): Shared | null {
  const [shared, setShared] = useState<Shared | null>(null);
  useLayoutEffect(() => {
    if (!client) return;
    const connection = client.sharedConnection();
    setShared({ client, connection });
    return () => connection?.close();
  }, [client]);
  return shared?.client === client ? shared : null;
}
