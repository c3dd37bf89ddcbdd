// The words for the kinds and states of agents, and the selection of an agent that can start.

import { type Agent, known } from "@acp-gateway/client";
import { line, lookup, visible } from "@acp-gateway/client/read";
import { strings } from "../strings";
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

/** The kind of an agent: where it runs if that is another machine, else its protocol. */
export function kindWords(agent: Agent): string {
  if (agent.name === "demo") return strings.agents.builtIn;
  return lookup(strings.agents.kinds, agent.kind ?? "") ?? lookup(strings.agents.dialects, agent.dialect ?? "") ?? strings.agents.command;
}

export function agentState(agent: Pick<Agent, "status">): AgentState {
  switch (known(agent.status?.state)) {
    case "unavailable": {
      const reason = line(agent.status.detail);
      return { tone: "bad", word: strings.agents.unavailable, detail: reason && sentence(reason), startable: true };
    }
    case "reconnecting":
      return { tone: "wait", word: strings.agents.reconnecting, detail: strings.agents.reconnectingHint, startable: true };
    case "disconnected":
      return { tone: "bad", word: strings.agents.disconnected, detail: strings.agents.disconnectedHint, startable: false };
    case "draining":
      return { tone: "wait", word: strings.agents.draining, detail: strings.agents.drainingHint, startable: false };
    default:
      return { tone: "good", word: strings.agents.available, detail: null, startable: true };
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
