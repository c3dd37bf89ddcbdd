// Folds the agent's own words: one `session/update` of ACP into the session.

import type { Command, ConfigOption, LogEvent, Raw } from "../api/types";
import { blocks, line, number, record, records, text } from "./read";
import type { Item, MessageItem, NoteItem, PlanEntry, SessionLog, ToolItem, ToolLocation, Turn } from "./state";
import { blocksText } from "./state";
import { updateItem, updateOwner } from "./turns";

export function foldUpdate(log: SessionLog, event: LogEvent): SessionLog {
  const update = record(event["update"]);
  if (!update) return log;
  switch (update["sessionUpdate"]) {
    case "agent_message_chunk":
      return inTurn(log, event, (turn) => chunk(turn, "message", update, event));
    case "agent_thought_chunk":
      return inTurn(log, event, (turn) => chunk(turn, "thought", update, event));
    case "user_message_chunk":
      return inTurn(log, event, (turn) => (isEcho(turn, update) ? turn : chunk(turn, "user", update, event)));
    case "tool_call":
    case "tool_call_update":
      return inTurn(log, event, (turn) => tool(turn, update, event));
    case "plan":
      return inTurn(log, event, (turn) => plan(turn, update, event));
    case "notice":
      return inTurn(log, event, (turn) => addItem(turn, notice(update, event)));
    case "compaction_update":
      return update["status"] === "completed"
        ? inTurn(log, event, (turn) => addItem(turn, note(event, "info", "The agent summed up the conversation to make room.")))
        : log;
    case "available_commands_update":
      return { ...log, commands: records(update["availableCommands"]) as unknown as Command[] };
    case "current_mode_update": {
      const currentModeId = text(update["currentModeId"]);
      return log.modes && currentModeId ? { ...log, modes: { ...log.modes, currentModeId } } : log;
    }
    case "config_option_update":
      return { ...log, configOptions: configOptions(update["configOptions"]) };
    case "session_info_update":
      return log.titleByPerson || !("title" in update) ? log : { ...log, title: line(update["title"]) };
    case "usage_update":
      return usage(log, update);
    default:
      return log;
  }
}

export function configOptions(value: unknown): ConfigOption[] {
  return records(value).filter((option) => typeof option["id"] === "string") as unknown as ConfigOption[];
}

export function note(event: LogEvent, severity: NoteItem["severity"], words: string, detail?: string | null): NoteItem {
  return { kind: "note", key: `n${event.seq}`, severity, text: words, ...(detail ? { detail } : {}) };
}

export function addItem(turn: Turn, item: Item): Turn {
  return { ...turn, items: [...turn.items, item] };
}

function inTurn(log: SessionLog, event: LogEvent, change: (turn: Turn) => Turn): SessionLog {
  return { ...log, turns: updateOwner(log.turns, event, change) };
}

/** A chunk belongs to the message before it when both name the same message, or when neither names any. */
function chunk(turn: Turn, kind: MessageItem["kind"], update: Raw, event: LogEvent): Turn {
  const [block] = blocks([update["content"]]);
  if (!block) return turn;
  const messageId = text(update["messageId"]);
  const last = turn.items.at(-1);
  const same = messageId
    ? turn.items.findLastIndex((item) => item.kind === kind && item.messageId === messageId)
    : last?.kind === kind && last.messageId === null
      ? turn.items.length - 1
      : -1;
  if (same < 0) {
    const item: MessageItem = { kind, key: `m${event.seq}`, messageId, blocks: [block], startedAt: event.time, endedAt: event.time };
    return addItem(turn, item);
  }
  const item = turn.items[same] as MessageItem;
  const before = item.blocks.at(-1)!;
  const joined =
    block.type === "text" && before.type === "text"
      ? item.blocks.with(-1, { ...before, text: (before.text ?? "") + (block.text ?? "") })
      : [...item.blocks, block];
  return { ...turn, items: turn.items.with(same, { ...item, blocks: joined, endedAt: event.time }) };
}

/** Some agents repeat the prompt at the head of its turn; it is shown already. */
function isEcho(turn: Turn, update: Raw): boolean {
  const words = text(record(update["content"])?.["text"]);
  return turn.promptId !== null && words !== null && blocksText(turn.prompt).includes(words);
}

/** An update without its call makes the card; omitted and null members keep what was there. */
function tool(turn: Turn, update: Raw, event: LogEvent): Turn {
  const toolCallId = text(update["toolCallId"]);
  if (toolCallId === null) return turn;
  const isThis = (item: Item): item is ToolItem => item.kind === "tool" && item.toolCallId === toolCallId;
  const items = updateItem(turn.items, isThis, (item) => patchTool(item, update));
  if (items) return { ...turn, items };
  const fresh: ToolItem = {
    kind: "tool",
    key: `t${event.seq}`,
    toolCallId,
    title: "Tool call",
    toolKind: "other",
    status: "pending",
    content: [],
    locations: [],
  };
  return addItem(turn, patchTool(fresh, update));
}

function patchTool(item: ToolItem, update: Raw): ToolItem {
  return {
    ...item,
    title: line(update["title"]) ?? item.title,
    toolKind: text(update["kind"]) ?? item.toolKind,
    status: text(update["status"]) ?? item.status,
    content: Array.isArray(update["content"]) ? records(update["content"]) : item.content,
    locations: Array.isArray(update["locations"]) ? locations(update["locations"]) : item.locations,
    rawInput: update["rawInput"] ?? item.rawInput,
    rawOutput: update["rawOutput"] ?? item.rawOutput,
  };
}

function locations(value: unknown): ToolLocation[] {
  return records(value).flatMap((entry) => {
    const path = line(entry["path"]);
    return path === null ? [] : [{ path, line: number(entry["line"]) }];
  });
}

function plan(turn: Turn, update: Raw, event: LogEvent): Turn {
  const entries: PlanEntry[] = records(update["entries"]).map((entry) => ({
    content: text(entry["content"]) ?? "",
    status: text(entry["status"]) ?? "pending",
    ...(typeof entry["priority"] === "string" ? { priority: entry["priority"] } : {}),
  }));
  const items = updateItem(
    turn.items,
    (item) => item.kind === "plan",
    (item) => ({ ...item, entries }),
  );
  return items ? { ...turn, items } : addItem(turn, { kind: "plan", key: `p${event.seq}`, entries });
}

function notice(update: Raw, event: LogEvent): NoteItem {
  const severity = update["severity"] === "warning" || update["severity"] === "error" ? update["severity"] : "info";
  return note(event, severity, text(update["title"]) ?? "", text(update["description"]));
}

function usage(log: SessionLog, update: Raw): SessionLog {
  const used = number(update["used"]);
  const size = number(update["size"]);
  if (used === null || size === null) return log;
  const cost = record(update["cost"]);
  const amount = number(cost?.["amount"]);
  const currency = text(cost?.["currency"]);
  const known = amount !== null && currency !== null && /^[A-Za-z]{3}$/.test(currency);
  return { ...log, usage: { used, size, cost: known ? { amount, currency } : null } };
}
