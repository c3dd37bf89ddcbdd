// Folds the agent's requests: creation and resolution.

import type { LogEvent, Raw } from "../api/types";
import { line, record, records, text } from "./read";
import type { Item, PermissionOption, RequestItem, Resolution, SessionLog, Turn } from "./state";
import { updateItem, updateOwner } from "./turns";
import { addItem, tool } from "./update";
import { visible } from "./words";

export function requestCreated(log: SessionLog, event: LogEvent): SessionLog {
  const requestId = text(event["requestId"]);
  if (requestId === null) return log;
  const params = record(event["params"]) ?? {};
  const subject = record(params["subject"]);
  const toolCall = record(params["toolCall"]) ?? record(subject?.["toolCall"]);
  const method = text(event["method"]) ?? "";
  const item: RequestItem = {
    kind: "request",
    key: `r${event.seq}`,
    requestId,
    method,
    params,
    options: options(params["options"]),
    toolCall,
    toolCallId: text(toolCall?.["toolCallId"]),
    title: line(params["title"]) ?? line(toolCall?.["title"]) ?? line(params["message"]) ?? titleOf(method, params),
    description: line(params["description"]) ?? line(subject?.["command"]),
    deadline: text(event["deadline"]),
    reserved: text(event["acpClient"]) !== null,
    resolution: null,
    done: false,
  };
  // Some agents show a call nowhere else before they report its result.
  const shown = (turn: Turn) => (toolCall && text(event["subagent"]) === null ? tool(turn, toolCall, event) : turn);
  return { ...log, turns: updateOwner(log.turns, event, (turn) => addItem(shown(turn), item)) };
}

export function requestResolved(log: SessionLog, event: LogEvent): SessionLog {
  const resolution = resolutionOf(event);
  return patchRequest(log, (item) => item.requestId === event["requestId"], { resolution });
}

/** The page of a URL elicitation is complete. */
export function elicitationCompleted(log: SessionLog, event: LogEvent): SessionLog {
  const elicitationId = text(event["elicitationId"]);
  return patchRequest(log, (item) => elicitationId !== null && item.params["elicitationId"] === elicitationId, { done: true });
}

function patchRequest(log: SessionLog, fits: (item: RequestItem) => boolean, patch: Partial<RequestItem>): SessionLog {
  const isThis = (item: Item): item is RequestItem => item.kind === "request" && fits(item);
  const index = log.turns.findLastIndex((turn) => turn.items.some(isThis));
  if (index < 0) return log;
  const turn = log.turns[index]!;
  const items = updateItem(turn.items, isThis, (item) => ({ ...item, ...patch })) ?? turn.items;
  return { ...log, turns: log.turns.with(index, { ...turn, items }) };
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
