// The use of the model's context and the cost, if the agent reports them.

import type { Usage } from "@acp-gateway/client";

export function UsageMeter({ usage }: { usage: Usage | null }) {
  if (!usage || usage.size <= 0) return null;
  const share = Math.min(1, usage.used / usage.size);
  const percent = Math.round(share * 100);
  const words = `${usage.used.toLocaleString("en")} of ${usage.size.toLocaleString("en")} tokens of context`;
  return (
    <div className="usage" title={words}>
      <meter className="usage-meter" min={0} max={1} high={0.85} value={share} aria-label={words} />
      <span aria-hidden="true">{percent} %</span>
      {usage.cost && usage.cost.amount > 0 && <span className="usage-cost">{money(usage.cost.amount, usage.cost.currency)}</span>}
    </div>
  );
}

function money(amount: number, currency: string): string {
  try {
    return amount.toLocaleString("en", { style: "currency", currency, maximumFractionDigits: 3 });
  } catch {
    return `${amount} ${currency}`;
  }
}
