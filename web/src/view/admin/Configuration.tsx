// The effective configuration with the source of each value.

import { useState } from "react";
import type { GatewayClient } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { strings } from "../../strings";
import { type Diagnostics, diagnostics, Live, Table } from "./parts";

type Setting = Diagnostics["configuration"][number];

export const settingColumns = {
  [strings.admin.key]: ({ key }: Setting) => <code className="admin-short">{key}</code>,
  [strings.admin.value]: ({ value }: Setting) => <code>{visible(value)}</code>,
  [strings.admin.source]: ({ source }: Setting) => <span className="admin-long">{source}</span>,
};

export function Configuration({ client }: { client: GatewayClient }) {
  const [filter, setFilter] = useState("");
  const [onlyChanged, setOnlyChanged] = useState(true);
  const wanted = filter.trim().toLowerCase();
  const isShown = ({ key, value, source }: Setting) => (!onlyChanged || source !== "default") && `${key}\n${value}`.toLowerCase().includes(wanted);
  return (
    <>
      <div className="admin-filters">
        <input className="field-box" type="search" aria-label={strings.admin.filterKeys} placeholder={strings.admin.filterKeys} value={filter} onChange={(event) => setFilter(event.target.value)} />
        <label className="check">
          <input type="checkbox" checked={onlyChanged} onChange={(event) => setOnlyChanged(event.target.checked)} />
          {strings.admin.onlyChanged}
        </label>
      </div>
      <Live client={client} load={diagnostics}>
        {({ configuration }) => {
          const rows = configuration.filter(isShown);
          return (
            <>
              <p className="admin-note" role="status">
                {strings.admin.shown(rows.length, configuration.length)}
              </p>
              <Table name={strings.admin.sections.configuration} rows={rows} keyOf={({ key }) => key} columns={settingColumns} empty={strings.admin.noMatch} />
            </>
          );
        }}
      </Live>
    </>
  );
}
