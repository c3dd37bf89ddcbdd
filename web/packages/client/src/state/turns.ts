// Changes to the list of turns. Unchanged parts are shared with the old state, so that the page renders only changes.

import type { LogEvent } from "../event.js";
import { appendItem, placeOf, type Kind } from "./items.js";
import { added, replaced } from "./lists.js";
import type { Item, SessionLog, Turn } from "./state.js";

export function addTurn(turns: Turn[], turn: Turn): Turn[] {
  return added(turns, turn);
}

export function addItem(turn: Turn, item: Item): Turn {
  return { ...turn, items: appendItem(turn.items, item) };
}

export function updateTurn(turns: Turn[], promptId: string, change: (turn: Turn) => Turn): Turn[] {
  const index = turns.findLastIndex((turn) => turn.promptId === promptId);
  return index < 0 ? turns : replaced(turns, index, change(turns[index]!));
}

/** Moves a queued turn before another one, or behind all of them (null). The other turns keep their places. */
export function moveQueued(turns: Turn[], promptId: string, before: string | null): Turn[] {
  const queue = turns.filter((turn) => turn.status === "queued");
  const moved = queue.find((turn) => turn.promptId === promptId);
  if (!moved || before === promptId) return turns;
  const order = queue.filter((turn) => turn !== moved);
  const at = before === null ? order.length : order.findIndex((turn) => turn.promptId === before);
  if (at < 0) return turns;
  order.splice(at, 0, moved);
  let next = turns;
  let place = 0;
  turns.forEach((turn, index) => {
    if (turn.status !== "queued") return;
    const there = order[place++]!;
    if (there !== turn) next = replaced(next, index, there);
  });
  return next;
}

/** Changes the turn of an event, or the place for events outside of turns. */
export function changeOwner(log: SessionLog, event: LogEvent, change: (turn: Turn) => Turn): SessionLog {
  return { ...log, turns: changedOwner(log, event, change) };
}

function changedOwner({ turns, start }: SessionLog, event: LogEvent, change: (turn: Turn) => Turn): Turn[] {
  const index = event.promptId ? turns.findLastIndex((turn) => turn.promptId === event.promptId) : -1;
  if (index >= 0) return replaced(turns, index, change(turns[index]!));
  const last = turns.at(-1);
  if (last?.status === "between") return replaced(turns, turns.length - 1, change(last));
  const cut = start > 0 && turns.every((turn) => turn.status === "queued");
  return added(turns, change(between(event, cut)));
}

function between(event: LogEvent, cut: boolean): Turn {
  return {
    key: `between-${event.seq ?? 0}`,
    promptId: null,
    status: "between",
    prompt: [],
    by: null,
    createdAt: event.time,
    endedAt: null,
    stopReason: null,
    cancelCause: null,
    problem: null,
    cut,
    items: [],
  };
}

/** Updates the turn that contains the part with this id, or returns null. */
export function updateHolder(turns: Turn[], kind: Kind, id: string | null, change: (turn: Turn) => Turn): Turn[] | null {
  const index = turns.findLastIndex((turn) => placeOf(turn.items, kind, id) >= 0);
  return index < 0 ? null : replaced(turns, index, change(turns[index]!));
}
