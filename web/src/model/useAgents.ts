// The catalogue of agents. The page reloads it while a person selects an agent, because members of the fleet come and go.

import { useCallback, useEffect, useState } from "react";
import type { Client } from "../api/client";
import type { Agent } from "../api/types";

const EVERY_MS = 5_000;

export interface AgentCatalogue {
  agents: Agent[] | null;
  error: unknown;
  refresh(): void;
}

export function useAgents(client: Client): AgentCatalogue {
  const [agents, setAgents] = useState<Agent[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [asked, setAsked] = useState(0);
  const refresh = useCallback(() => setAsked((before) => before + 1), []);

  useEffect(() => {
    const stop = new AbortController();
    client.agents(stop.signal).then(
      (found) => {
        setAgents(found);
        setError(null);
      },
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
  }, [client, asked]);

  useEffect(() => {
    const timer = setInterval(() => !document.hidden && refresh(), EVERY_MS);
    return () => clearInterval(timer);
  }, [refresh]);

  return { agents, error, refresh };
}
