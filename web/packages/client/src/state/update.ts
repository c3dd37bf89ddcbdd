// Folds the agent's own words: one `session/update` of ACP into the session.

import type { LogEvent } from "../event.js";
import type { ContentBlock, Raw } from "../types.js";
import { commands, configOptions } from "./offers.js";
import { blocks, line, lookup, number, record, records, text } from "./read.js";
import type { CompactionItem, MessageItem, NoteCause, NoteItem, PlanEntry, SessionLog, ToolItem, ToolLocation, Turn } from "./state.js";
import { inSubagent, relayed, subagentUpdate } from "./subagent.js";
import { appended, newTerminal } from "./terminal.js";
import { placeOf, replaceItem, updateItem } from "./items.js";
import { addItem, changeOwner, updateHolder } from "./turns.js";

export function foldUpdate(log: SessionLog, event: LogEvent): SessionLog {
  const update = record(event["update"]);
  if (!update) return log;
  const subagent = text(event["subagent"]);
  if (subagent !== null) return inSubagent(log, event, subagent, (holder) => inPlace(holder, update, event));
  switch (update["sessionUpdate"]) {
    case "subagent_update":
      return subagentUpdate(log, update, event);
    case "session_message":
    case "session_message_chunk":
      return relayed(log, update, event);
    case "available_commands_update":
      return { ...log, commands: commands(update["availableCommands"]) };
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
    case "plan_update":
    case "plan_removed":
      return namedPlan(log, update, event);
    default:
      return SHOWN.has(update["sessionUpdate"]) ? changeOwner(log, event, (turn) => inPlace(turn, update, event)) : log;
  }
}

const SHOWN: ReadonlySet<unknown> = new Set([
  "agent_message_chunk",
  "agent_thought_chunk",
  "user_message_chunk",
  "tool_call",
  "tool_call_update",
  "plan",
  "notice",
  "compaction_update",
  "compaction_summary_chunk",
]);

/** The list of parts in which an update appears: of a turn, or of a subagent in a turn. */
function inPlace(turn: Turn, update: Raw, event: LogEvent): Turn {
  switch (update["sessionUpdate"]) {
    case "agent_message_chunk":
      return chunk(turn, "message", update, event);
    case "agent_thought_chunk":
      return chunk(turn, "thought", update, event);
    case "user_message_chunk":
      // The prompt is shown already.
      return event["echo"] === true ? turn : chunk(turn, "user", update, event);
    case "tool_call":
    case "tool_call_update":
      return tool(turn, update, event);
    case "plan":
    case "plan_update":
      return plan(turn, update, event);
    case "plan_removed":
      return { ...turn, items: turn.items.filter((item) => item.kind !== "plan" || item.planId !== update["planId"]) };
    case "notice":
      return addItem(turn, notice(update, event));
    case "compaction_update":
    case "compaction_summary_chunk":
      return compaction(turn, update, event);
    default:
      return turn;
  }
}

export function note(event: LogEvent, severity: NoteItem["severity"], cause: NoteCause, words: string, detail?: string | null): NoteItem {
  return { kind: "note", key: `n${event.seq}`, severity, cause, text: words, ...(detail ? { detail } : {}) };
}

/** A chunk belongs to the message before it when both name the same message, or when neither names any. */
function chunk(turn: Turn, kind: MessageItem["kind"], update: Raw, event: LogEvent): Turn {
  const [block] = blocks([update["content"]]);
  if (!block) return turn;
  const messageId = text(update["messageId"]);
  const last = turn.items.at(-1);
  const same = messageId
    ? placeOf(turn.items, kind, messageId)
    : last?.kind === kind && last.messageId === null
      ? turn.items.length - 1
      : -1;
  if (same < 0) {
    const item: MessageItem = { kind, key: `m${event.seq}`, messageId, blocks: [block], startedAt: event.time, endedAt: event.time };
    return addItem(turn, item);
  }
  const item = turn.items[same] as MessageItem;
  return { ...turn, items: replaceItem(turn.items, same, { ...item, blocks: joined(item.blocks, block), endedAt: event.time }) };
}

/** Appends text to the last text. */
export function joined(all: ContentBlock[], block: ContentBlock): ContentBlock[] {
  const before = all.at(-1);
  if (block.type !== "text" || before?.type !== "text") return [...all, block];
  return all.with(-1, { ...before, text: (before.text ?? "") + (block.text ?? "") });
}

/**
 * An update without its call creates the card. Omitted and null members keep the old value. An agent may use the id of a call
 * again after its end: for another call, or to ask for permission.
 */
export function tool(turn: Turn, update: Raw, event: LogEvent): Turn {
  const toolCallId = text(update["toolCallId"]);
  if (toolCallId === null) return turn;
  const asks = event.type === "request.created";
  const place = placeOf(turn.items, "tool", toolCallId);
  const known = place < 0 ? null : (turn.items[place] as ToolItem);
  const begins = asks || update["sessionUpdate"] === "tool_call";
  if (known && !(begins && ENDED.has(known.status))) {
    const item = patchTool(asks ? asked(known, update) : known, update);
    return { ...turn, items: replaceItem(turn.items, place, item) };
  }
  // The card of the call is among the earlier parts.
  if (turn.cut && !("title" in update)) return turn;
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

const ENDED: ReadonlySet<string> = new Set(["completed", "failed", "cancelled"]);

/** The call as a permission request begins from it: under another title, an input that is not repeated is that of something else. */
function asked(item: ToolItem, request: Raw): ToolItem {
  const title = line(request["title"]);
  if (title === null || title === item.title) return item;
  const { rawInput: _, ...rest } = item;
  return rest;
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
    ...ownCommands(item, record(update["_meta"])),
  };
}

/** Agents that run commands by themselves report the output in `_meta`, a chunk in each update. */
function ownCommands(item: ToolItem, meta: Raw | null): Pick<ToolItem, "commands"> {
  let all = item.commands;
  for (const key of ["terminal_info", "terminal_output", "terminal_output_delta", "terminal_exit"]) {
    const member = record(meta?.[key]);
    const terminalId = text(member?.["terminal_id"]);
    if (member === null || terminalId === null) continue;
    const known = lookup(all, terminalId) ?? newTerminal(terminalId);
    const exit = { exited: true, exitCode: number(member["exit_code"]), signal: line(member["signal"]) };
    const next = key === "terminal_exit" ? { ...known, ...exit } : appended(known, text(member["data"]) ?? "");
    all = { ...all, [terminalId]: next };
  }
  return all ? { commands: all } : {};
}

function locations(value: unknown): ToolLocation[] {
  return records(value).flatMap((entry) => {
    const path = line(entry["path"]);
    return path === null ? [] : [{ path, line: number(entry["line"]) }];
  });
}

function plan(turn: Turn, update: Raw, event: LogEvent): Turn {
  const named = record(update["plan"]);
  const source = named ?? update;
  const planId = named ? text(named["planId"]) : null;
  const entries: PlanEntry[] = records(source["entries"]).map((entry) => ({
    content: line(entry["content"]) ?? "",
    status: text(entry["status"]) ?? "pending",
    ...(typeof entry["priority"] === "string" ? { priority: entry["priority"] } : {}),
  }));
  const said = { entries, markdown: text(source["content"]), uri: line(source["uri"]) };
  const items = updateItem(turn.items, "plan", planId, (item) => ({ ...item, ...said }));
  return items ? { ...turn, items } : addItem(turn, { kind: "plan", key: `p${event.seq}`, planId, ...said });
}

/** A plan with a name stays where it was first shown, whichever turn changes it. */
function namedPlan(log: SessionLog, update: Raw, event: LogEvent): SessionLog {
  const planId = text(update["planId"]) ?? text(record(update["plan"])?.["planId"]);
  if (planId === null) return log;
  const change = (turn: Turn) => inPlace(turn, update, event);
  const held = updateHolder(log.turns, "plan", planId, change);
  if (held) return { ...log, turns: held };
  return update["sessionUpdate"] === "plan_removed" ? log : changeOwner(log, event, change);
}

function compaction(turn: Turn, update: Raw, event: LogEvent): Turn {
  const compactionId = text(update["compactionId"]);
  if (compactionId === null) return turn;
  const patch = (item: CompactionItem): CompactionItem => {
    if (update["sessionUpdate"] === "compaction_summary_chunk") {
      return { ...item, summary: blocks([update["content"]]).reduce(joined, item.summary) };
    }
    return {
      ...item,
      status: line(update["status"]) ?? item.status,
      summary: "summary" in update ? blocks(update["summary"]) : item.summary,
      error: "error" in update ? text(update["error"]) : item.error,
    };
  };
  const items = updateItem(turn.items, "compaction", compactionId, patch);
  if (items) return { ...turn, items };
  return addItem(turn, patch({ kind: "compaction", key: `k${event.seq}`, compactionId, status: "in_progress", summary: [], error: null }));
}

function notice(update: Raw, event: LogEvent): NoteItem {
  const severity = update["severity"] === "warning" || update["severity"] === "error" ? update["severity"] : "info";
  return note(event, severity, "agent", text(update["title"]) ?? "", text(update["description"]));
}

export function usage(log: SessionLog, update: Raw): SessionLog {
  const used = number(update["used"]);
  const size = number(update["size"]);
  if (used === null || size === null) return log;
  const cost = record(update["cost"]);
  const amount = number(cost?.["amount"]);
  const currency = text(cost?.["currency"]);
  const known = amount !== null && currency !== null && /^[A-Za-z]{3}$/.test(currency);
  return { ...log, usage: { used, size, cost: known ? { amount, currency } : null } };
}
