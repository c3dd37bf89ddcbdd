// Sums up the events since the last visit, below the mark of the first new turn.

import { useMemo } from "react";
import type { Turn } from "@acp-gateway/client";
import { awayLines } from "../model/away";
import { clock, duration } from "../model/words";
import { strings } from "../strings";
import { Icon } from "./Icon";

/** A shorter absence needs no summary. */
const ABSENT_MS = 2 * 60_000;

export function AwaySummary({ turns, since }: { turns: readonly Turn[]; since: string | null }) {
  const lines = useMemo(() => awayLines(turns), [turns]);
  const last = turns.at(-1)?.endedAt ?? turns.at(-1)?.createdAt ?? null;
  if (since === null || last === null || lines.length === 0 || Date.now() - Date.parse(since) < ABSENT_MS) return null;
  return (
    <section className="away" aria-labelledby="away-title">
      <div className="recent-head">
        <h2 id="away-title">{strings.transcript.away}</h2>
        <span className="away-time">{duration(since, new Date().toISOString())}</span>
      </div>
      <ul>
        {lines.map((line, index) => (
          <li key={index}>
            <Icon name={line.icon} className={`state-${line.tone}`} />
            <span className="away-words">{line.words}</span>
            {line.time && <span className="away-time">{clock(line.time)}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}
