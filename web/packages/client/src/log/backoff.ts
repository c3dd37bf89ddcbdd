// The delay before the next attempt: it starts at the server's `retry:`, doubles up to a maximum, and has jitter, so
// that many pages of one gateway do not reconnect at the same time.

const CAP_MS = 30_000;

export function backoff(attempt: number, baseMs: number, random: () => number = Math.random): number {
  const full = Math.min(CAP_MS, baseMs * 2 ** Math.min(attempt, 16));
  return Math.round(full / 2 + (full / 2) * random());
}
