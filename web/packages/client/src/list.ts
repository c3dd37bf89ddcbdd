// The list of sessions and its changes, which the shared stream brings.

import { parseCursor } from "./log/cursor.js";
import type { SessionPage, SessionSummary } from "./types.js";

/** What a session in the list is now. Null if it was deleted. */
export interface ListChange {
  session: string;
  summary: SessionSummary | null;
}

/** The list after these changes. The list itself stays as it is. */
export function changedList(page: SessionPage, changes: readonly ListChange[]): SessionPage {
  const sessions = new Map(page.sessions.map((session) => [session.sessionId as string, session]));
  // Older sessions are on the next page, whose cursor is the last session of this one.
  const oldest = page.nextCursor === null ? null : page.sessions.at(-1);
  for (const { session, summary } of changes) {
    if (summary === null) {
      sessions.delete(session);
      continue;
    }
    const known = sessions.get(session);
    if (known ? !isOlder(summary, known) : !oldest || compare(summary, oldest) < 0) sessions.set(session, summary);
  }
  return { ...page, sessions: [...sessions.values()].sort(compare) };
}

/** The order of the gateway: the latest activity first. */
function compare(a: SessionSummary, b: SessionSummary): number {
  return later(b.lastActivityAt, a.lastActivityAt) || later(a.sessionId, b.sessionId);
}

function later(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Whether a summary was overtaken by an answer of the gateway. */
function isOlder(summary: SessionSummary, known: SessionSummary): boolean {
  const [a, b] = [parseCursor(summary.lastEventId), parseCursor(known.lastEventId)];
  return a !== null && b !== null && a.epoch === b.epoch && a.seq < b.seq;
}
