// The scopes of the key. The page offers only actions that the gateway accepts from this key.

import type { About, GatewayClient, Known } from "@acp-gateway/client";
import { useAbout } from "./useAbout";

export type Scope = Extract<Known<About["scopes"][number]>, string>;

/** Until the gateway has said what the key may do, only what an admin may do is missing. */
export function permits(about: About | null, scope: Scope): boolean {
  return about === null ? scope !== "admin" : about.scopes.includes(scope);
}

export function useMay(client: GatewayClient, scope: Scope): boolean {
  return permits(useAbout(client), scope);
}
