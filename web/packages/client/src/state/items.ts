// The parts of a turn or of a subagent: found by id, added and replaced. An index per list makes each of these independent of
// the length of the list.

import { added, replaced } from "./lists.js";
import type { Item } from "./state.js";

export type Kind = Item["kind"];
export type ItemOf<K extends Kind> = Item extends infer I ? (I extends { kind: infer Kinds } ? (K extends Kinds ? I : never) : never) : never;

/** The places of the parts that have an id. A list that is made from another takes over its index. */
const indexes = new WeakMap<readonly Item[], Map<string, number>>();

/** The place of the last part with this id, or -1. */
export function placeOf(items: readonly Item[], kind: Kind, id: string | null): number {
  let index = indexes.get(items);
  if (!index) {
    index = new Map();
    for (const [place, item] of items.entries()) enter(index, item, place);
    indexes.set(items, index);
  }
  return index.get(keyOf(kind, id)) ?? -1;
}

/** Changes the part with this id, or returns null. */
export function updateItem<K extends Kind>(items: Item[], kind: K, id: string | null, change: (item: ItemOf<K>) => Item): Item[] | null {
  const place = placeOf(items, kind, id);
  return place < 0 ? null : replaceItem(items, place, change(items[place] as ItemOf<K>));
}

/** Replaces a part by one with the same id. */
export function replaceItem(items: Item[], place: number, item: Item): Item[] {
  return handOver(items, replaced(items, place, item));
}

export function appendItem(items: Item[], item: Item): Item[] {
  const place = items.length;
  const all = handOver(items, added(items, item));
  const index = indexes.get(all);
  if (index) enter(index, item, place);
  return all;
}

function handOver(from: Item[], to: Item[]): Item[] {
  const index = indexes.get(from);
  if (index && from !== to) {
    indexes.delete(from);
    indexes.set(to, index);
  }
  return to;
}

function enter(index: Map<string, number>, item: Item, place: number): void {
  const id = idOf(item);
  if (id !== undefined) index.set(keyOf(item.kind, id), place);
}

/** Undefined if the part cannot be found by an id. The plan without a name has the id null. */
function idOf(item: Item): string | null | undefined {
  switch (item.kind) {
    case "message":
    case "thought":
    case "user":
    case "relay":
      return item.messageId ?? undefined;
    case "tool":
      return item.toolCallId;
    case "plan":
      return item.planId;
    case "request":
      return item.requestId;
    case "compaction":
      return item.compactionId;
    case "subagent":
      return item.subagent;
    case "terminal":
      return item.terminalId;
    case "note":
      return undefined;
  }
}

function keyOf(kind: Kind, id: string | null): string {
  return id === null ? kind : `${kind} ${id}`;
}
