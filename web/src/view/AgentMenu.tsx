// The agent of a new session.

import { useRef } from "react";
import type { Agent } from "@acp-gateway/client";
import { agentTitle } from "../model/agents";
import { strings } from "../strings";
import { AgentChoice } from "./AgentChoice";
import { Icon } from "./Icon";
import { Popover } from "./Popover";

interface Props {
  agents: Agent[];
  /** The name of the chosen agent. */
  chosen: string | null;
  onChoose(agent: string): void;
}

export function AgentMenu({ agents, chosen, onChoose }: Props) {
  // The arrow keys select the agents one after the other, so only the pointer closes the menu.
  const byPointer = useRef(false);
  const agent = agents.find(({ name }) => name === chosen);
  const title = agent ? agentTitle(agent) : strings.agents.none;
  const button = (
    <>
      <span className="tile" aria-hidden="true">
        {[...title][0]?.toUpperCase()}
      </span>
      <span className="hidden">{strings.agents.label}</span>
      {title}
      <Icon name="open" />
    </>
  );
  return (
    <Popover button={button} name={strings.agents.menu}>
      {(close) => (
        <fieldset className="agents" onPointerDown={() => (byPointer.current = true)} onKeyDown={() => (byPointer.current = false)}>
          <legend className="hidden">{strings.agents.legend}</legend>
          {agents.map((each) => (
            <AgentChoice
              key={each.name}
              agent={each}
              chosen={chosen === each.name}
              onChoose={() => {
                onChoose(each.name);
                if (byPointer.current) close();
              }}
            />
          ))}
        </fieldset>
      )}
    </Popover>
  );
}
