// The agent's plan with its progress.

import { memo } from "react";
import type { PlanItem } from "@acp-gateway/client";
import { strings } from "../strings";
import { Icon } from "./Icon";
import { Markdown } from "./Markdown";

export const PlanCard = memo(function PlanCard({ item, live }: { item: PlanItem; live: boolean }) {
  if (item.markdown !== null || item.uri !== null) {
    return (
      <div className="plan" role="group" aria-label={strings.common.plan}>
        <p className="plan-head">{strings.common.plan}</p>
        {item.markdown !== null && <Markdown text={item.markdown} />}
        {item.uri !== null && <p className="reference">{item.uri}</p>}
      </div>
    );
  }
  const done = item.entries.filter((entry) => entry.status === "completed").length;
  return (
    <div className="plan" role="group" aria-label={strings.common.plan}>
      <p className="plan-head">
        {strings.common.plan}
        <span>
          {strings.transcript.planDone(done, item.entries.length)}
        </span>
      </p>
      <ol>
        {item.entries.map((entry, index) => (
          <li key={index} className={`plan-entry plan-${entry.status}`}>
            <span className="plan-mark">
              {live && entry.status === "in_progress" ? <span className="spinner" /> : <Icon name={entry.status === "completed" ? "check" : "pending"} />}
            </span>
            <span>
              {entry.content}
              <span className="hidden"> ({entry.status === "in_progress" ? strings.transcript.stepInProgress : entry.status})</span>
            </span>
          </li>
        ))}
      </ol>
    </div>
  );
});
