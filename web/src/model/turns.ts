// Small pure functions on the list of turns. They do not change their arguments. Unchanged parts are shared with the
// old state, so that the page renders only changes.

import type { LogEvent } from "../api/types";
import type { Item, Turn } from "./state";

export function updateTurn(turns: Turn[], promptId: string, change: (turn: Turn) => Turn): Turn[] {
  const index = turns.findLastIndex((turn) => turn.promptId === promptId);
  return index < 0 ? turns : turns.with(index, change(turns[index]!));
}

/** Finds the turn of an event, or creates the place for events outside of turns. */
export function updateOwner(turns: Turn[], event: LogEvent, change: (turn: Turn) => Turn): Turn[] {
  const index = event.promptId ? turns.findLastIndex((turn) => turn.promptId === event.promptId) : -1;
  if (index >= 0) return turns.with(index, change(turns[index]!));
  const last = turns.at(-1);
  if (last?.status === "between") return turns.with(-1, change(last));
  return [...turns, change(between(event))];
}

export function updateItem<T extends Item>(items: Item[], find: (item: Item) => item is T, change: (item: T) => Item): Item[] | null {
  const index = items.findLastIndex(find);
  return index < 0 ? null : items.with(index, change(items[index] as T));
}

function between(event: LogEvent): Turn {
  return {
    key: `between-${event.seq ?? 0}`,
    promptId: null,
    status: "between",
    prompt: [],
    by: null,
    createdAt: event.time,
    endedAt: null,
    stopReason: null,
    problem: null,
    items: [],
  };
}

/** Updates the turn that contains a match, or returns null. */
export function updateHolder(turns: Turn[], fits: (item: Item) => boolean, change: (turn: Turn) => Turn): Turn[] | null {
  const index = turns.findLastIndex((turn) => turn.items.some(fits));
  return index < 0 ? null : turns.with(index, change(turns[index]!));
}
