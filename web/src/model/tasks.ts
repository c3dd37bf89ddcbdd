// Tasks in words.

import { known, type Task } from "@acp-gateway/client";
import { strings } from "../strings";

export function taskWords(task: Task): string {
  if (known(task.status) === "completed" && task.result?.success === false) return strings.inbox.ended(task.result.stopReason);
  return strings.inbox.statuses[task.status] ?? task.status;
}

/** The tone of the state, as of agents. */
export function taskTone(task: Task): "good" | "wait" | "bad" {
  if (isOpen(task)) return "wait";
  return known(task.status) === "completed" && task.result?.success !== false ? "good" : "bad";
}

/** Whether the task waits or runs. */
export function isOpen(task: Task): boolean {
  const status = known(task.status);
  return status === "queued" || status === "running";
}
