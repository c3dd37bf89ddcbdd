// The use of the model's context and the cost, if the agent reports them.

import type { Usage } from "@acp-gateway/client";
import { strings } from "../strings";

/** From this share on, the agent may soon compact its context. */
const HIGH = 0.85;

export function UsageMeter({ usage }: { usage: Usage | null }) {
  if (!usage || usage.size <= 0) return null;
  const share = Math.min(1, usage.used / usage.size);
  const percent = Math.round(share * 100);
  const words = strings.session.usage(usage.used.toLocaleString("en"), usage.size.toLocaleString("en"));
  return (
    <p className={share >= HIGH ? "usage usage-high" : "usage"} title={words}>
      {strings.session.share(percent)}
      {usage.cost && usage.cost.amount > 0 && ` · ${money(usage.cost.amount, usage.cost.currency)}`}
    </p>
  );
}

function money(amount: number, currency: string): string {
  try {
    return amount.toLocaleString("en", { style: "currency", currency, maximumFractionDigits: 3 });
  } catch {
    return `${amount} ${currency}`;
  }
}
