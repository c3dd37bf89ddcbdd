// The disk, the retention, and the sessions that need the most space.

import type { GatewayClient } from "@acp-gateway/client";
import { sessionHref } from "../../model/route";
import { strings } from "../../strings";
import { Ago } from "../Ago";
import { settingColumns } from "./Configuration";
import { Bytes, diagnostics, Figures, Live, Table } from "./parts";

export function Storage({ client }: { client: GatewayClient }) {
  return (
    <Live client={client} load={diagnostics}>
      {({ store, configuration }) => (
        <>
          <Figures
            values={{
              [strings.admin.free]: <Bytes count={store.diskFreeBytes} />,
              [strings.admin.disk]: <Bytes count={store.diskTotalBytes} />,
              [strings.admin.log]: <Bytes count={store.logBytes} />,
              [strings.admin.sessions]: store.sessions,
              [strings.admin.folder]: <code>{store.folder}</code>,
              [strings.admin.format]: store.format,
              [strings.admin.shard]: store.shard,
            }}
          />
          <h3>{strings.admin.retention}</h3>
          <Table name={strings.admin.retention} rows={configuration.filter(({ key }) => key.startsWith("retention."))} keyOf={({ key }) => key} columns={settingColumns} empty={strings.admin.none} />
          <h3>{strings.admin.largest}</h3>
          <Table
            name={strings.admin.largest}
            rows={store.largestSessions}
            keyOf={({ sessionId }) => sessionId}
            empty={strings.admin.noSessions}
            columns={{
              [strings.admin.session]: ({ sessionId }) => (
                <a href={sessionHref(sessionId)}>
                  <code>{sessionId}</code>
                </a>
              ),
              [strings.admin.agent]: ({ agent }) => agent,
              [strings.admin.size]: ({ bytes }) => <Bytes count={bytes} />,
              [strings.admin.events]: ({ events }) => events,
              [strings.admin.lastActivity]: ({ lastActivityAt }) => <Ago time={lastActivityAt} />,
            }}
          />
        </>
      )}
    </Live>
  );
}
