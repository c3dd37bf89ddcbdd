// The age of an event, and the duration of something that runs.

import { ago, duration } from "../model/words";
import { SECOND_MS, MINUTE_STEP_MS, useNow } from "./now";

export function Ago({ time }: { time: string }) {
  const now = useNow(MINUTE_STEP_MS);
  return (
    <time dateTime={time} title={time}>
      {ago(time, now)}
    </time>
  );
}

/** Renders nothing in the first second. */
export function Elapsed({ since }: { since: string }) {
  const now = useNow(SECOND_MS);
  return now - Date.parse(since) < SECOND_MS ? null : <span className="elapsed">{duration(since, new Date(now).toISOString())}</span>;
}
