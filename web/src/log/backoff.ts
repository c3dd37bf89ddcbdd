// How long to wait before the next try: doubling from the server's own `retry:`, capped, and spread so that many pages that
// lost the same gateway do not come back in one moment.

const CAP_MS = 30_000;

export function backoff(attempt: number, baseMs: number, random: () => number = Math.random): number {
  const full = Math.min(CAP_MS, baseMs * 2 ** Math.min(attempt, 16));
  return Math.round(full / 2 + (full / 2) * random());
}
