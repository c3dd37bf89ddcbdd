// Tasks in words.

import type { Task } from "@acp-gateway/client";
import { strings } from "../strings";

export function taskWords(task: Task): string {
  if (task.status === "completed" && task.result?.success === false) return strings.inbox.ended(task.result.stopReason);
  return strings.inbox.statuses[task.status] ?? task.status;
}

/** The tone of the state, as of agents. */
export function taskTone(task: Task): "good" | "wait" | "bad" {
  if (task.status === "queued" || task.status === "running") return "wait";
  return task.status === "completed" && task.result?.success !== false ? "good" : "bad";
}
