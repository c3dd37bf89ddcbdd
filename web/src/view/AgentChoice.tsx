// One agent of the catalogue as a choice: its name, its kind and its state.

import type { Agent } from "@acp-gateway/client";
import { line } from "@acp-gateway/client/read";
import { agentState, agentTitle, kindWords } from "../model/agents";

interface Props {
  agent: Agent;
  chosen: boolean;
  onChoose(): void;
}

export function AgentChoice({ agent, chosen, onChoose }: Props) {
  const title = agentTitle(agent);
  const version = line(agent.version) ?? line(agent.agentInfo?.["version"]);
  const state = agentState(agent);
  return (
    <label className={state.startable ? "agent" : "agent agent-off"}>
      <input type="radio" name="agent" value={agent.name} checked={chosen} disabled={!state.startable} onChange={onChoose} />
      <span className="agent-words">
        <span className="agent-name">
          {title}
          {version && <span className="agent-version">{version}</span>}
        </span>
        <span className="agent-kind">
          {title !== agent.name && <>{agent.name} · </>}
          {kindWords(agent)}
        </span>
        <span className={`agent-state agent-${state.tone}`}>
          <span className="agent-dot" aria-hidden="true" />
          <span>
            {state.word}
            {state.detail && <span className="agent-detail">: {state.detail}</span>}
          </span>
        </span>
      </span>
    </label>
  );
}
