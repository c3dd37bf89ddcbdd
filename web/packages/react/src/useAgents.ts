// The catalogue of agents. The page reloads it while a person selects an agent, because members of the fleet come and go.

import { useCallback, useState } from "react";
import type { Agent, GatewayClient } from "@acp-gateway/client";
import { useReload } from "./useReload.js";

const EVERY_MS = 5_000;

export interface AgentCatalogue {
  /** Null until the first answer. */
  agents: Agent[] | null;
  /** Of the last request, or null. */
  error: unknown;
  refresh(): void;
}

/** The catalogue is reloaded every 5 s while the page is visible. */
export function useAgents(client: GatewayClient): AgentCatalogue {
  const [agents, setAgents] = useState<Agent[] | null>(null);
  const load = useCallback((signal: AbortSignal) => client.agents({ signal }), [client]);
  const { error, refresh } = useReload(EVERY_MS, load, setAgents);
  return { agents, error, refresh };
}
