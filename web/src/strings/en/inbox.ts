// The inbox and the tasks.

export const inbox = "Inbox";
export const empty = "No session needs an answer.";
export const forEditor = "Only the editor that started this turn can answer.";
export const openToAnswer = "Open the session to answer.";
export const openToSee = "Open the session to see the whole call, and to answer.";

export const tasks = "Tasks";
export const about = "Programs give agents tasks through the {}.";
export const api = "API";
export const noTasks = "No tasks yet.";
export const olderTasks = "Show older tasks";
export const noDescription = "Task without a description";
export const ofTask = (title: string) => ` of ${title}`;
/** By the status of the task. */
export const statuses: Record<string, string> = {
  queued: "Queued",
  running: "Running",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
  interrupted: "Interrupted by a restart",
};
export const ended = (reason: string | null | undefined) => `Ended: ${reason ?? "without success"}`;
