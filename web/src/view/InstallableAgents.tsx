// The agents of the registry, for keys with the scope `admin`. The operator installs them with a command.

import { useEffect, useState } from "react";
import type { GatewayClient, InstallableAgent } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { strings } from "../strings";
import { ProblemNote } from "./ProblemNote";
import { Words } from "./Words";

export function InstallableAgents({ client, configured }: { client: GatewayClient; configured: string[] }) {
  const [open, setOpen] = useState(false);
  const [list, setList] = useState<{ configured: boolean; agents: InstallableAgent[] } | null>(null);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    if (!open || list !== null) return;
    client.installableAgents().then(setList, setError);
  }, [client, open, list]);

  const others = list?.agents.filter((agent) => !configured.includes(agent.id));
  return (
    <details className="installable" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{strings.agents.install}</summary>
      {error !== null && <ProblemNote error={error} />}
      {list?.configured === false && (
        <p className="installable-note">
          <Words text={strings.agents.noRegistry} />
        </p>
      )}
      {list?.configured && others?.length === 0 && <p className="installable-note">{strings.agents.allConfigured}</p>}
      <ul className="task-list">
        {others?.map((agent) => (
          <li key={agent.id} className="task">
            <p className="task-title">
              {visible(agent.name)} <span className="agent-version">{agent.version}</span>
            </p>
            <p className="installable-note">{visible(agent.description)}</p>
            {agent.kinds.length > 0 ? <code className="installable-command">acp-gateway agent add {agent.id}</code> : <p className="installable-note">{strings.agents.notForMachine}</p>}
          </li>
        ))}
      </ul>
    </details>
  );
}
