// The rights of the person: the scopes of the key, and the access to the session that the page shows. The page offers only actions
// that the gateway accepts.

import { createContext, useContext } from "react";
import type { About, Access, GatewayClient, Known } from "@acp-gateway/client";
import { useAbout } from "./useAbout";

export type Scope = Extract<Known<About["scopes"][number]>, string>;

/** The levels of access to a session. Each level includes the ones before it. */
export const LEVELS: readonly Access[] = ["read", "prompt", "approve", "own"];

/** The access to the shown session. Null without a session, and until the gateway has answered. */
export const SessionAccess = createContext<Access | null>(null);

/** What is missing for an action that needs this scope and this access. Null if nothing is missing, or if it is unknown. */
export function missing(about: About | null, scope: Scope, needed: Access = "read", given: Access | null = null): "scope" | "access" | null {
  // Until the gateway has said what the key may do, only what an admin may do is missing.
  if (about === null ? scope === "admin" : !about.scopes.includes(scope)) return "scope";
  return given !== null && LEVELS.indexOf(given) < LEVELS.indexOf(needed) ? "access" : null;
}

/** What is missing for an action in the shown session. */
export function useMissing(client: GatewayClient, scope: Scope, needed: Access = "read"): "scope" | "access" | null {
  return missing(useAbout(client), scope, needed, useContext(SessionAccess));
}

export function useMay(client: GatewayClient, scope: Scope, needed?: Access): boolean {
  return useMissing(client, scope, needed) === null;
}
