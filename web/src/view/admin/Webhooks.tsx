// The webhooks, and the deliveries that did not succeed yet.

import { type CallOptions, type GatewayClient, known } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { sessionHref } from "../../model/route";
import { strings } from "../../strings";
import { Ago } from "../Ago";
import { At, Live, State, Table } from "./parts";

const LATEST = 200;
const load = async (client: GatewayClient, call: CallOptions) => {
  const [{ webhooks }, { deliveries }] = await Promise.all([client.webhooks(call), client.webhookDeliveries({ limit: LATEST }, call)]);
  return { webhooks, failures: deliveries.filter(({ state }) => known(state) !== "delivered") };
};

export function Webhooks({ client }: { client: GatewayClient }) {
  return (
    <Live client={client} load={load}>
      {({ webhooks, failures }) => (
        <>
          <Table
            name={strings.admin.sections.webhooks}
            rows={webhooks}
            keyOf={({ webhookId }) => webhookId}
            empty={strings.admin.noWebhooks}
            columns={{
              [strings.admin.receiver]: ({ url }) => <code>{visible(url)}</code>,
              [strings.admin.events]: ({ events }) => events.join(", "),
              [strings.admin.state]: ({ gone }) => (gone ? <State tone="bad" word={strings.admin.gone} /> : <State tone="good" word={strings.admin.active} />),
              [strings.admin.created]: ({ createdAt }) => <Ago time={createdAt} />,
            }}
          />
          <h3>{strings.admin.failures}</h3>
          <Table
            name={strings.admin.failures}
            rows={failures}
            keyOf={({ deliveryId }) => deliveryId}
            empty={strings.admin.noFailures(LATEST)}
            columns={{
              [strings.admin.event]: ({ type }) => <code className="admin-short">{type}</code>,
              [strings.admin.receiver]: ({ url }) => <code>{visible(url)}</code>,
              [strings.admin.state]: ({ state }) => <State tone={known(state) === "failed" ? "bad" : "wait"} word={lookup(strings.admin.deliveryStates, state) ?? state} />,
              [strings.admin.attempts]: ({ attempts }) => attempts,
              [strings.admin.answer]: ({ lastStatus, lastError }) => (lastStatus !== null ? strings.admin.status(lastStatus) : lastError && <span className="admin-long">{visible(lastError)}</span>),
              [strings.admin.next]: ({ nextAttemptAt }) => nextAttemptAt && <At time={nextAttemptAt} />,
              [strings.admin.session]: ({ sessionId }) => sessionId && <a href={sessionHref(sessionId)}>{strings.common.openSession}</a>,
            }}
          />
        </>
      )}
    </Live>
  );
}
