// Tasks in words.

import type { Task } from "@acp-gateway/client";

const WORDS: Record<string, string> = {
  queued: "Queued",
  running: "Running",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
  interrupted: "Interrupted by a restart",
};

export function taskWords(task: Task): string {
  if (task.status === "completed" && task.result?.success === false) return `Ended: ${task.result.stopReason ?? "without success"}`;
  return WORDS[task.status] ?? task.status;
}

/** The tone of the state, as of agents. */
export function taskTone(task: Task): "good" | "wait" | "bad" {
  if (task.status === "queued" || task.status === "running") return "wait";
  return task.status === "completed" && task.result?.success !== false ? "good" : "bad";
}
