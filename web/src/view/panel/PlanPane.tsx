// The plans of the agent: the latest one, and those with names.

import { type Item, type PlanItem, runningTurn, type SessionLog } from "@acp-gateway/client";
import { strings } from "../../strings";
import { PlanCard } from "../PlanCard";
import { LoadEarlier } from "./LoadEarlier";

export function PlanPane({ log, onEarlier }: { log: SessionLog; onEarlier(): void }) {
  const plans = latestPlans(log);
  if (plans.length === 0) return log.start > 0 ? <LoadEarlier onLoad={onEarlier} /> : <p className="panel-empty">{strings.panel.noPlan}</p>;
  return plans.map((plan) => {
    const done = plan.entries.filter((entry) => entry.status === "completed").length;
    return (
      <div key={plan.planId ?? ""}>
        {plan.entries.length > 0 && <progress className="meter" max={plan.entries.length} value={done} aria-label={strings.panel.completedSteps} />}
        <PlanCard item={plan} live={runningTurn(log) !== null} />
      </div>
    );
  });
}

/** The last plan of each name. */
function latestPlans(log: SessionLog): PlanItem[] {
  const found = new Map<string | null, PlanItem>();
  const items = log.turns.flatMap((turn): Item[] => turn.items);
  for (const item of items) if (item.kind === "plan") found.set(item.planId, item);
  return [...found.values()].reverse();
}
