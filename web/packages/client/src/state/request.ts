// Folds the agent's requests: creation and resolution.

import type { LogEvent } from "../event.js";
import type { Raw } from "../types.js";
import { line, record, records, text, visible } from "./read.js";
import type { Item, PermissionOption, RequestItem, Resolution, SessionLog, Turn } from "./state.js";
import { placeOf, replaceItem } from "./items.js";
import { replaced } from "./lists.js";
import { addItem, changeOwner } from "./turns.js";
import { tool } from "./update.js";

export function requestCreated(log: SessionLog, event: LogEvent): SessionLog {
  const item = requestItem(event, `r${event.seq}`);
  // A log that begins after the request has it from the session.
  if (item === null || log.turns.some(({ items }) => placeOf(items, "request", item.requestId) >= 0)) return log;
  const { toolCall } = item;
  // Some agents show a call nowhere else before they report its result.
  const shown = (turn: Turn) => (toolCall && text(event["subagent"]) === null ? tool(turn, toolCall, event) : turn);
  return changeOwner(log, event, (turn) => addItem(shown(turn), item));
}

/** The request of an event `request.created`, or of the list of pending requests, which have the same members. */
export function requestItem(source: object, key: string): RequestItem | null {
  const raw = source as Raw;
  const requestId = text(raw["requestId"]);
  if (requestId === null) return null;
  const params = record(raw["params"]) ?? {};
  const subject = record(params["subject"]);
  const toolCall = record(params["toolCall"]) ?? record(subject?.["toolCall"]);
  const method = text(raw["method"]) ?? "";
  return {
    kind: "request",
    key,
    requestId,
    method,
    params,
    options: options(params["options"]),
    toolCall,
    toolCallId: text(toolCall?.["toolCallId"]) ?? text(subject?.["toolCallId"]),
    title: line(params["title"]) ?? line(toolCall?.["title"]) ?? line(params["message"]) ?? titleOf(method, params),
    description: line(params["description"]) ?? line(subject?.["command"]),
    deadline: text(raw["deadline"]),
    reserved: text(raw["acpClient"]) !== null,
    resolution: null,
    done: false,
  };
}

export function requestResolved(log: SessionLog, event: LogEvent): SessionLog {
  const resolution = resolutionOf(event);
  const requestId = text(event["requestId"]);
  return patchRequest(log, ({ items }) => placeOf(items, "request", requestId), { resolution });
}

/** The page of a URL elicitation is complete. */
export function elicitationCompleted(log: SessionLog, event: LogEvent): SessionLog {
  const elicitationId = text(event["elicitationId"]);
  const isThis = (item: Item) => item.kind === "request" && item.params["elicitationId"] === elicitationId;
  return patchRequest(log, ({ items }) => (elicitationId === null ? -1 : items.findLastIndex(isThis)), { done: true });
}

/** Changes the request at the place that `find` returns, in the last turn in which it is not -1. */
function patchRequest(log: SessionLog, find: (turn: Turn) => number, patch: Partial<RequestItem>): SessionLog {
  const index = log.turns.findLastIndex((turn) => find(turn) >= 0);
  if (index < 0) return log;
  const turn = log.turns[index]!;
  const place = find(turn);
  const items = replaceItem(turn.items, place, { ...(turn.items[place] as RequestItem), ...patch });
  return { ...log, turns: replaced(log.turns, index, { ...turn, items }) };
}

function resolutionOf(event: LogEvent): Resolution {
  const result = record(event["result"]);
  const outcome = record(result?.["outcome"]);
  return {
    how: text(event["resolution"]) ?? "answered",
    by: text(event["by"]),
    optionId: text(outcome?.["optionId"]),
    action: event["method"] === "elicitation/create" ? text(result?.["action"]) : null,
    refused: record(event["error"]) !== null,
  };
}

/** Requests of the protocol that carry no words of their own. */
function titleOf(method: string, params: Raw): string {
  const of = (name: string) => line(params[name]) ?? "";
  const args = Array.isArray(params["args"]) ? params["args"].filter((arg) => typeof arg === "string").map(visible) : [];
  switch (method) {
    case "fs/read_text_file":
      return `Read ${of("path")}`;
    case "fs/write_text_file":
      return `Write ${of("path")}`;
    case "terminal/create":
      return ["Run", of("command"), ...args].join(" ");
    case "terminal/output":
    case "terminal/wait_for_exit":
    case "terminal/kill":
    case "terminal/release":
      return `${method.slice(9).replaceAll("_", " ")} of the terminal ${of("terminalId")}`;
    default:
      return visible(method);
  }
}

function options(value: unknown): PermissionOption[] {
  return records(value).flatMap((entry) => {
    const optionId = text(entry["optionId"]);
    return optionId === null ? [] : [{ optionId, name: line(entry["name"]) ?? visible(optionId), kind: text(entry["kind"]) ?? "" }];
  });
}
