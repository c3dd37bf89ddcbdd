// The state of the gateway, and its latest warnings.

import type { GatewayClient } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { strings } from "../../strings";
import { Ago } from "../Ago";
import { Bytes, type Diagnostics, diagnostics, Figures, Live, pairs, Seconds, State, Table, valueText } from "./parts";

export function Overview({ client }: { client: GatewayClient }) {
  return (
    <Live client={client} load={diagnostics}>
      {(state) => (
        <>
          <Figures
            values={{
              [strings.admin.state]: <Readiness {...state} />,
              [strings.admin.version]: state.version,
              [strings.admin.platform]: state.platform,
              [strings.admin.uptime]: <Seconds count={state.uptimeSeconds} />,
              [strings.admin.memory]: <Bytes count={state.process.memoryBytes} />,
              [strings.admin.openFiles]: ofMost(state.process.openFiles, state.process.maxOpenFiles),
              [strings.admin.cpu]: <Seconds count={state.process.cpuSeconds} />,
              [strings.admin.streams]: counts(state.streams),
              [strings.admin.tasks]: counts(state.tasks, strings.inbox.statuses),
              [strings.admin.pending]: state.webhooksPending,
            }}
          />
          {state.truncated.length > 0 && <p className="admin-note">{strings.admin.truncated(state.truncated.join(", "))}</p>}
          <h3>{strings.admin.warnings}</h3>
          <Table
            name={strings.admin.warnings}
            rows={state.logs}
            keyOf={(_, index) => state.logs.length - index}
            empty={strings.admin.noWarnings}
            columns={{
              [strings.admin.time]: ({ time }) => <Ago time={time} />,
              [strings.admin.level]: ({ level }) => (level.toLowerCase() === "error" ? <State tone="bad" word={strings.admin.error} /> : <State tone="wait" word={strings.admin.warning} />),
              [strings.admin.message]: ({ message, target, fields }) => <LogRecord message={message} fields={{ target, ...fields }} />,
            }}
          />
        </>
      )}
    </Live>
  );
}

function Readiness({ ready, draining }: Diagnostics) {
  if (draining) return <State tone="wait" word={strings.admin.draining} />;
  return ready ? <State tone="good" word={strings.admin.ready} /> : <State tone="bad" word={strings.admin.notReady} />;
}

function LogRecord({ message, fields }: { message: string; fields: Record<string, unknown> }) {
  return (
    <>
      <p className="admin-long">{visible(message)}</p>
      {Object.entries(fields).map(([name, value]) => (
        <span key={name} className="admin-field">
          {name} <code>{visible(valueText(value))}</code>
        </span>
      ))}
    </>
  );
}

function ofMost(count: number | null, most: number | null) {
  return count !== null && most !== null ? strings.admin.outOf(count, most) : count;
}

/** The counts that are not zero, with the names of their kinds. */
function counts(of: Record<string, number>, names?: Record<string, string>): string {
  const shown = Object.entries(of).filter(([, count]) => count > 0);
  return pairs(Object.fromEntries(shown.map(([kind, count]) => [lookup(names, kind) ?? kind, count]))) || "0";
}
