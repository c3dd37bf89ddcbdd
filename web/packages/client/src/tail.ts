// The end of a long log. It begins with the session as it is now, and with the prompts and requests that are open at its first event.

import type { GatewayClient } from "./client.js";
import type { LogEvent } from "./event.js";
import { parseCursor } from "./log/cursor.js";
import { ApiProblem } from "./problem.js";
import { foldAll, withSession } from "./state/fold.js";
import { requestCreated } from "./state/request.js";
import { EMPTY, type SessionLog } from "./state/state.js";
import type { Session } from "./types.js";

/** The events of a turn up to its start are among the first ones, unless its prompt was changed in the queue more often. */
const HEAD_EVENTS = 20;
/** At the start of the tail, one turn ran and at most eight waited. Prompts that were removed from the queue are ends too. */
const ENDS = 20;

/**
 * The log before the last `length` events of a session. Null: the session has no more events than that, or the gateway cannot say it,
 * and the log is to be read from its beginning.
 */
export async function beforeTail(client: GatewayClient, sessionId: string, length: number, signal: AbortSignal): Promise<SessionLog | null> {
  try {
    const session = await client.session(sessionId, { signal });
    const end = parseCursor(session.lastEventId);
    if (end === null || end.seq <= length) return null;
    const after = `${end.epoch}-${end.seq - length}`;
    const [firsts, ends] = await Promise.all([
      client.eventPage(sessionId, { after, limit: 1 }, { signal }),
      client.eventPage(sessionId, { after, limit: ENDS, types: ["prompt.completed", "prompt.failed"] }, { signal }),
    ]);
    const first = firsts.events[0];
    // The gateway does not have the event any more.
    if (first?.seq !== end.seq - length + 1) return null;
    const heads = await Promise.all(turnsFrom(session, ends.events).map((prompt) => headOf(client, sessionId, prompt, signal)));
    return logBefore(first, session, heads.flat());
  } catch (error) {
    if (error instanceof ApiProblem) return null;
    throw error;
  }
}

/** The turns that run or wait now, and those that ended in the tail. They include all that had not ended before it. */
function turnsFrom({ promptId, queued }: Session, ends: readonly LogEvent[]): string[] {
  const all = [promptId, ...queued, ...ends.map((end) => end.promptId)];
  return [...new Set(all.filter((id) => typeof id === "string"))];
}

/** The events of a turn until it started. */
async function headOf(client: GatewayClient, session: string, prompt: string, signal: AbortSignal): Promise<LogEvent[]> {
  const head: LogEvent[] = [];
  for (let after: string | null = null; ; ) {
    const page = await client.promptEventPage(session, prompt, { after, limit: HEAD_EVENTS }, { signal });
    head.push(...page.events.filter(({ type }) => type === "prompt.queued" || type === "prompt.changed" || type === "prompt.started"));
    if (!page.more || head.at(-1)?.type === "prompt.started") return head;
    after = page.lastEventId;
  }
}

/** The log before the event `first`. `heads`: the events with which the turns began that had not ended before it. */
export function logBefore(first: LogEvent, session: Session, heads: readonly LogEvent[]): SessionLog {
  const start = (first.seq ?? 1) - 1;
  const known = withSession(EMPTY, session);
  const began = heads.filter(({ seq }) => seq !== undefined && seq <= start).sort((a, b) => a.seq! - b.seq!);
  const turns = foldAll(known, began).turns.map((turn) => (turn.status === "queued" ? turn : { ...turn, cut: true }));
  const log = { ...known, epoch: parseCursor(first.id)?.epoch ?? null, seq: start, start, turns };
  const open = session.requests.filter(({ requestId, createdAt }) => createdAt <= first.time && requestId !== first["requestId"]);
  return open.reduce((log, { createdAt, promptId, ...request }, index) => {
    const event = { ...request, type: "request.created", time: createdAt, seq: start - open.length + 1 + index };
    return requestCreated(log, promptId === null ? event : { ...event, promptId });
  }, log);
}
