// How long ago something was, and how long it has been going on.

import { ago, duration } from "../model/words";
import { SECOND_MS, SHORT_MS, useNow } from "./now";

export function Ago({ time }: { time: string }) {
  const now = useNow(SHORT_MS);
  return <time dateTime={time}>{ago(time, now)}</time>;
}

/** Nothing in the first second. */
export function Elapsed({ since }: { since: string }) {
  const now = useNow(SECOND_MS);
  return now - Date.parse(since) < SECOND_MS ? null : <span className="elapsed">{duration(since, new Date(now).toISOString())}</span>;
}
