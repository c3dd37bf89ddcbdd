// The words for the kinds and states of agents, and the selection of an agent that can start.

import type { Agent } from "@acp-gateway/client";
import { line, lookup, visible } from "@acp-gateway/client/read";
import { sentence } from "./explain";

/** How the page shows the state of an agent. */
export interface AgentState {
  tone: "good" | "wait" | "bad";
  word: string;
  /** The reason, or the next step. */
  detail: string | null;
  /** Whether a new session can start, or its start may succeed. */
  startable: boolean;
}

const KINDS: Record<string, string> = { remote: "Remote host", fleet: "Fleet member" };
const DIALECTS: Record<string, string> = { "stream-json": "Claude Code protocol", "early-acp": "Early ACP" };

/** The kind of an agent: where it runs if that is another machine, else its protocol. */
export function kindWords(agent: Agent): string {
  if (agent.name === "demo") return "Built in";
  return lookup(KINDS, agent.kind ?? "") ?? lookup(DIALECTS, agent.dialect ?? "") ?? "Command";
}

export function agentState(agent: Agent): AgentState {
  switch (agent.status?.state) {
    case "unavailable": {
      const reason = line(agent.status.detail);
      return { tone: "bad", word: "Unavailable", detail: reason && sentence(reason), startable: true };
    }
    case "reconnecting":
      return { tone: "wait", word: "Reconnecting", detail: "A new session waits for its return.", startable: true };
    case "disconnected":
      return { tone: "bad", word: "Disconnected", detail: "Start acp-gateway connect on its machine again.", startable: false };
    case "draining":
      return { tone: "wait", word: "Draining", detail: "It starts no new sessions. Restart acp-gateway connect to end the drain.", startable: false };
    default:
      return { tone: "good", word: "Available", detail: null, startable: true };
  }
}

export function agentTitle(agent: Agent): string {
  return visible(line(agent.title) ?? line(agent.agentInfo?.["title"]) ?? agent.name);
}

/** The chosen agent while it can start, else the first one without a problem, else the first one that may start. */
export function startable(agents: Agent[], chosen: string | null): string | null {
  const able = agents.filter((agent) => agentState(agent).startable);
  const good = able.find((agent) => agentState(agent).tone === "good");
  return (able.find((agent) => agent.name === chosen) ?? good ?? able[0])?.name ?? null;
}
