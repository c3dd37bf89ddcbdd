// A subagent with its messages and actions, collapsed like a tool call.

import type { ReactNode } from "react";
import type { SubagentItem } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { strings } from "../strings";
import { Icon } from "./Icon";

const STATES: Record<string, string> = { running: "running", idle: "done", requires_action: "waiting" };

export function SubagentCard({ item, live, children }: { item: SubagentItem; live: boolean; children: ReactNode }) {
  const said = lookup(STATES, item.state) ?? item.state ?? "";
  const status = said === "running" && !live ? "unfinished" : said;
  const name = item.title || strings.tools.subagent;
  return (
    <details className="tool subagent">
      <summary className="tool-head">
        <Icon name="chevron" className="chevron" />
        <Icon name="agent" />
        <span className="hidden">{strings.tools.subagentLabel}</span>
        <span className="tool-title">
          {name}
          {item.description && <span className="subagent-about"> {item.description}</span>}
        </span>
        <span className={`tool-status status-${status}`}>{lookup(strings.tools.states, status) ?? status}</span>
      </summary>
      <div className="tool-body" role="group" aria-label={name}>
        {children}
      </div>
    </details>
  );
}
