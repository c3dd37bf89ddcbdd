// The members of the fleet.

import { type Answer, type CallOptions, type GatewayClient, known } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { strings } from "../../strings";
import { Ago } from "../Ago";
import { Live, State, Table } from "./parts";

const load = (client: GatewayClient, call: CallOptions) => client.fleet(call);

export function Fleet({ client }: { client: GatewayClient }) {
  return (
    <Live client={client} load={load}>
      {({ members }) => (
        <Table
          name={strings.admin.sections.fleet}
          rows={members}
          keyOf={({ name }) => name}
          empty={strings.admin.noMembers}
          columns={{
            [strings.admin.name]: ({ name }) => name,
            [strings.admin.state]: (member) => <MemberState {...member} />,
            [strings.admin.changed]: ({ since }) => <Ago time={since} />,
            [strings.admin.heartbeat]: ({ lastHeartbeatAt }) => lastHeartbeatAt && <Ago time={lastHeartbeatAt} />,
            [strings.admin.latency]: ({ latencyMs }) => latencyMs !== null && strings.admin.milliseconds(latencyMs),
            [strings.admin.processes]: ({ processes, capacity }) => strings.admin.outOf(processes, capacity),
            [strings.admin.version]: ({ version }) => visible(version),
            [strings.admin.key]: ({ key }) => visible(key),
          }}
        />
      )}
    </Live>
  );
}

function MemberState({ state, draining }: Answer<"FleetMember">) {
  const word = lookup(strings.admin.memberStates, state) ?? state;
  const tone = { connected: "good", reconnecting: "wait", disconnected: "bad" } as const;
  return <State tone={draining ? "wait" : (lookup(tone, known(state)) ?? "wait")} word={draining ? strings.admin.memberDrains(word) : word} />;
}
