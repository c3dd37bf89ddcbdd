// Folds what the agent asks of people: a request is made, and somebody or something resolves it.

import type { LogEvent } from "../api/types";
import { line, record, records, text } from "./read";
import type { Item, PermissionOption, RequestItem, Resolution, SessionLog } from "./state";
import { updateItem, updateOwner } from "./turns";
import { addItem } from "./update";
import { visible } from "./words";

export function requestCreated(log: SessionLog, event: LogEvent): SessionLog {
  const requestId = text(event["requestId"]);
  if (requestId === null) return log;
  const params = record(event["params"]) ?? {};
  const toolCall = record(params["toolCall"]);
  const item: RequestItem = {
    kind: "request",
    key: `r${event.seq}`,
    requestId,
    method: text(event["method"]) ?? "",
    params,
    options: options(params["options"]),
    toolCallId: text(toolCall?.["toolCallId"]),
    title: line(toolCall?.["title"]) ?? line(params["message"]) ?? "",
    deadline: text(event["deadline"]),
    resolution: null,
  };
  return { ...log, turns: updateOwner(log.turns, event, (turn) => addItem(turn, item)) };
}

export function requestResolved(log: SessionLog, event: LogEvent): SessionLog {
  const resolution = resolutionOf(event);
  const isThis = (item: Item): item is RequestItem => item.kind === "request" && item.requestId === event["requestId"];
  const index = log.turns.findLastIndex((turn) => turn.items.some(isThis));
  if (index < 0) return log;
  const turn = log.turns[index]!;
  const items = updateItem(turn.items, isThis, (item) => ({ ...item, resolution })) ?? turn.items;
  return { ...log, turns: log.turns.with(index, { ...turn, items }) };
}

function resolutionOf(event: LogEvent): Resolution {
  const outcome = record(record(event["result"])?.["outcome"]);
  return { how: text(event["resolution"]) ?? "answered", by: text(event["by"]), optionId: text(outcome?.["optionId"]) };
}

function options(value: unknown): PermissionOption[] {
  return records(value).flatMap((entry) => {
    const optionId = text(entry["optionId"]);
    return optionId === null ? [] : [{ optionId, name: line(entry["name"]) ?? visible(optionId), kind: text(entry["kind"]) ?? "" }];
  });
}
