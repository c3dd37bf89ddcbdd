// The owner and the rights of the key, which do not change while the page uses it.

import { useEffect, useState } from "react";
import type { About, GatewayClient } from "@acp-gateway/client";

const asked = new WeakMap<GatewayClient, Promise<About>>();
const found = new WeakMap<GatewayClient, About>();

/** Null until the gateway has answered. Without the rights, the rest of the page works. */
export function useAbout(client: GatewayClient): About | null {
  const [about, setAbout] = useState<About | null>(() => found.get(client) ?? null);
  useEffect(() => {
    let shown = true;
    const answer = asked.get(client) ?? client.about();
    asked.set(client, answer);
    answer.then(
      (about) => {
        found.set(client, about);
        if (shown) setAbout(about);
      },
      () => asked.delete(client),
    );
    return () => {
      shown = false;
    };
  }, [client]);
  return about;
}
