// Subagents: child sessions of the agent, whose messages arrive in the log of their parent and are shown under their
// name.

import type { LogEvent } from "../event.js";
import type { Raw } from "../types.js";
import { blocks, line, record, text } from "./read.js";
import type { RelayItem, SessionLog, SubagentItem, Turn } from "./state.js";
import { placeOf, updateItem } from "./items.js";
import { addItem, changeOwner, updateHolder } from "./turns.js";
import { joined } from "./update.js";

/** Applies updates to a subagent's messages and actions, as to a turn. */
export function inSubagent(log: SessionLog, event: LogEvent, subagent: string, change: (holder: Turn) => Turn): SessionLog {
  return patch(log, event, subagent, (item, turn) => {
    const { items } = change({ ...turn, promptId: null, prompt: [], items: item.items });
    return { ...item, items };
  });
}

export function subagentUpdate(log: SessionLog, update: Raw, event: LogEvent): SessionLog {
  const subagent = text(update["sessionId"]);
  if (subagent === null) return log;
  return patch(log, event, subagent, (item) => ({
    ...item,
    title: "title" in update ? line(update["title"]) : item.title,
    description: "description" in update ? line(update["description"]) : item.description,
    state: "state" in update ? stateOf(update["state"]) : item.state,
  }));
}

/** A message to or from a subagent is shown with the subagent; other messages are shown in the turn. */
export function relayed(log: SessionLog, update: Raw, event: LogEvent): SessionLog {
  const messageId = text(update["messageId"]);
  if (messageId === null) return log;
  const from = text(update["senderSessionId"]);
  const to = text(update["recipientSessionId"]);
  const put = (holder: Turn): Turn => {
    const items = updateItem(holder.items, "relay", messageId, (item) => said(item, update));
    if (items) return { ...holder, items };
    return addItem(holder, said({ kind: "relay", key: `y${event.seq}`, messageId, from, to, blocks: [] }, update));
  };
  const subagents = log.turns.flatMap((turn) => turn.items).filter((item): item is SubagentItem => item.kind === "subagent");
  const owner =
    subagents.findLast((item) => placeOf(item.items, "relay", messageId) >= 0) ?? subagents.findLast((item) => item.subagent === from || item.subagent === to);
  if (owner) return inSubagent(log, event, owner.subagent, put);
  const held = updateHolder(log.turns, "relay", messageId, put);
  return held ? { ...log, turns: held } : changeOwner(log, event, put);
}

function said(item: RelayItem, update: Raw): RelayItem {
  if (update["sessionUpdate"] === "session_message_chunk") {
    return { ...item, blocks: blocks([update["content"]]).reduce(joined, item.blocks) };
  }
  return "content" in update ? { ...item, blocks: blocks(update["content"]) } : item;
}

function patch(log: SessionLog, event: LogEvent, subagent: string, change: (item: SubagentItem, turn: Turn) => SubagentItem): SessionLog {
  const put = (turn: Turn): Turn => {
    const items = updateItem(turn.items, "subagent", subagent, (item) => change(item, turn));
    if (items) return { ...turn, items };
    const fresh: SubagentItem = { kind: "subagent", key: `s${event.seq}`, subagent, title: null, description: null, state: null, items: [] };
    return addItem(turn, change(fresh, turn));
  };
  const held = updateHolder(log.turns, "subagent", subagent, put);
  return held ? { ...log, turns: held } : changeOwner(log, event, put);
}

function stateOf(value: unknown): string | null {
  return line(value) ?? line(record(value)?.["state"]);
}
