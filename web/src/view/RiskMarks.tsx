// The marks of all risks of a call.

import { Icon } from "./Icon";

export function RiskMarks({ risks }: { risks: string[] }) {
  return risks.map((risk) => (
    <p key={risk} className="risk">
      <Icon name="warning" /> {risk}
    </p>
  ));
}
