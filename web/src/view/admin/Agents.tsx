// The agents with their processes, their queues and their last failures.

import type { GatewayClient } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { agentState } from "../../model/agents";
import { sentence } from "../../model/explain";
import { sessionHref } from "../../model/route";
import { strings } from "../../strings";
import { Ago } from "../Ago";
import { Output } from "../Parts";
import { Bytes, type Diagnostics, diagnostics, Live, State, Table } from "./parts";

export function Agents({ client }: { client: GatewayClient }) {
  return (
    <Live client={client} load={diagnostics}>
      {({ agents, processes }) => (
        <>
          {agents.length === 0 && <p className="admin-note">{strings.admin.noAgents}</p>}
          <ul className="task-list">
            {agents.map((agent) => (
              <Entry key={agent.name} agent={agent} />
            ))}
          </ul>
          <h3>{strings.admin.processes}</h3>
          <Table
            name={strings.admin.processes}
            rows={processes}
            keyOf={({ pid }, index) => pid ?? -index}
            empty={strings.admin.noProcesses}
            columns={{
              [strings.admin.agent]: ({ agent }) => agent,
              [strings.admin.pid]: ({ pid }) => pid,
              [strings.admin.state]: ({ state }) => lookup(strings.admin.processStates, state) ?? state,
              [strings.admin.session]: ({ sessionId }) => sessionId && <a href={sessionHref(sessionId)}>{strings.common.openSession}</a>,
              [strings.admin.memory]: ({ memoryBytes }) => <Bytes count={memoryBytes} />,
              [strings.admin.started]: ({ startedAt }) => <Ago time={startedAt} />,
            }}
          />
        </>
      )}
    </Live>
  );
}

function Entry({ agent: { name, status, pool, lastFailure } }: { agent: Diagnostics["agents"][number] }) {
  const { tone, word, detail } = agentState({ status });
  return (
    <li className="task">
      <p className="task-title">{visible(name)}</p>
      <p className="task-meta">
        <State tone={tone} word={word} />
        <span>{strings.admin.pool(pool.processes, pool.maxSize, pool.idle)}</span>
        <span>{strings.admin.queue(pool.waiting)}</span>
      </p>
      {lastFailure === null && detail && <p>{detail}</p>}
      {lastFailure !== null && (
        <>
          <p className="task-meta">
            <span>
              {strings.admin.lastFailure} <code>{lastFailure.code}</code>
            </span>
            {lastFailure.exitCode !== null && <span>{strings.admin.exitCode(lastFailure.exitCode)}</span>}
            <Ago time={lastFailure.time} />
          </p>
          <p className="problem-detail">{sentence(visible(lastFailure.detail))}</p>
          {lastFailure.stderrTail !== "" && (
            <details>
              <summary>{strings.common.outputOfAgent}</summary>
              <Output label={strings.common.outputOfAgent} text={lastFailure.stderrTail} />
            </details>
          )}
        </>
      )}
    </li>
  );
}
