// The methods by which an agent lets people sign in.

import { record } from "@acp-gateway/client/read";

/** True if the method takes an API key, which the gateway passes to the agent. Agents mark these methods in `_meta`. */
export function takesKey(method: unknown): boolean {
  const meta = record(record(method)?.["_meta"]);
  return meta !== null && "api-key" in meta;
}
