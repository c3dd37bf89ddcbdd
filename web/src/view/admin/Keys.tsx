// The keys, without their secrets.

import type { CallOptions, GatewayClient } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { strings } from "../../strings";
import { Ago } from "../Ago";
import { At, Live, pairs, Table } from "./parts";

const load = (client: GatewayClient, call: CallOptions) => client.keys({}, call);

export function Keys({ client }: { client: GatewayClient }) {
  return (
    <Live client={client} load={load}>
      {({ keys }) => (
        <Table
          name={strings.admin.sections.keys}
          rows={keys}
          keyOf={({ keyId }) => keyId}
          empty={strings.admin.noKeys}
          columns={{
            [strings.admin.name]: ({ name }) => visible(name),
            [strings.admin.user]: ({ user, tenant }) => visible(tenant === "default" ? user : `${tenant}/${user}`),
            [strings.admin.id]: ({ keyId }) => <code className="admin-short">{keyId}</code>,
            [strings.admin.kind]: ({ kind }) => lookup(strings.admin.keyKinds, kind) ?? kind,
            [strings.admin.scopes]: ({ scopes }) => scopes.join(", "),
            [strings.admin.limits]: ({ limits, folders, memberNames }) => (
              <span className="admin-long">{[pairs(limits), ...memberNames, ...folders.map(visible)].filter((text) => text !== "").join(", ") || strings.admin.none}</span>
            ),
            [strings.admin.created]: ({ createdAt }) => createdAt && <Ago time={createdAt} />,
            [strings.admin.lastUsed]: ({ lastUsedAt }) => lastUsedAt && <Ago time={lastUsedAt} />,
            [strings.admin.expires]: ({ expiresAt }) => expiresAt && <At time={expiresAt} />,
          }}
        />
      )}
    </Live>
  );
}
