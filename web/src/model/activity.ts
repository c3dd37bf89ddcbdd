// Consecutive tool calls of a turn that worked: one line on the page, with the calls in it.

import type { Item, ToolItem } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { strings } from "../strings";

export interface Activity {
  kind: "activity";
  key: string;
  calls: ToolItem[];
  /** Nothing of it runs, and the agent has gone on to something else. */
  isOver: boolean;
}

/**
 * The parts with their activities. `live`: the turn runs; `isEnd`: no part of the turn follows these. A failed call, and a
 * change to a file, stays a part of its own.
 */
export function withActivities(items: readonly Item[], live: boolean, isEnd: boolean): (Item | Activity)[] {
  const rows: (Item | Activity)[] = [];
  for (const item of items) {
    const last = rows.at(-1);
    if (item.kind !== "tool" || !belongs(item, live)) rows.push(item);
    else if (last?.kind === "activity") last.calls.push(item);
    else rows.push({ kind: "activity", key: `a ${item.key}`, calls: [item], isOver: false });
  }
  for (const [index, row] of rows.entries()) {
    if (row.kind === "activity") row.isOver = row.calls.every(isDone) && (!live || !isEnd || index < rows.length - 1);
  }
  return rows;
}

function belongs(item: ToolItem, live: boolean): boolean {
  const works = isDone(item) || (live && (item.status === "pending" || item.status === "in_progress"));
  return works && item.content.every((part) => part["type"] !== "diff");
}

function isDone(item: ToolItem): boolean {
  return item.status === "completed";
}

/** What the calls did, for example "Read 3 files, ran one command". */
export function summary(calls: readonly ToolItem[]): string {
  const counts = new Map<string, number>();
  for (const { toolKind } of calls) {
    const kind = lookup(strings.tools.activities, toolKind) ? toolKind : "other";
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  const phrases = [...counts].map(([kind, count]) => strings.tools.activities[kind]?.(count) ?? strings.tools.otherActivity(count));
  const words = phrases.join(", ");
  return words.slice(0, 1).toUpperCase() + words.slice(1);
}
