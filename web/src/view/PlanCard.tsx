// The agent's plan, with what is done of it.

import { memo } from "react";
import type { PlanItem } from "../model/state";
import { Icon } from "./Icon";

export const PlanCard = memo(function PlanCard({ item }: { item: PlanItem }) {
  const done = item.entries.filter((entry) => entry.status === "completed").length;
  return (
    <section className="plan" aria-label="Plan">
      <p className="plan-head">
        Plan
        <span>
          {done} of {item.entries.length} done
        </span>
      </p>
      <ol>
        {item.entries.map((entry, index) => (
          <li key={index} className={`plan-entry plan-${entry.status}`}>
            <span className="plan-mark">{entry.status === "completed" && <Icon name="check" />}</span>
            <span>
              {entry.content}
              <span className="hidden"> ({entry.status.replace("_", " ")})</span>
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
});
