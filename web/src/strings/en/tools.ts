// Tool calls: their kinds, states, actions, changes and terminals.

/** By the kind of the call. */
export const kinds: Record<string, string> = {
  read: "Read",
  edit: "Edit",
  delete: "Delete",
  move: "Move",
  search: "Search",
  execute: "Run",
  think: "Think",
  fetch: "Fetch",
  switch_mode: "Switch mode",
};
export const otherKind = "Tool";
/** By the state of the call on the page. */
export const states: Record<string, string> = {
  waiting: "waiting",
  running: "running",
  done: "done",
  failed: "failed",
  stopped: "stopped",
  unfinished: "unfinished",
  declined: "not run",
};
export const subagent = "Subagent";
export const subagentLabel = "Subagent: ";

export const command = "Command";
export const runsIn = "Runs in {}";
export const runsWith = "Sets {}";
export const commandLines = (count: number) => `${count} lines. Scroll to read all of them.`;
export const rawInput = "Raw input";
export const input = "Input";
export const places = "Places";

/** What several calls of one kind did. */
export const activities: Record<string, (count: number) => string> = {
  read: (count) => `read ${counted(count, "file")}`,
  edit: (count) => `edited ${counted(count, "file")}`,
  delete: (count) => `deleted ${counted(count, "file")}`,
  move: (count) => `moved ${counted(count, "file")}`,
  search: (count) => `searched ${counted(count, "time")}`,
  execute: (count) => `ran ${counted(count, "command")}`,
  think: (count) => `thought ${counted(count, "time")}`,
  fetch: (count) => `fetched ${counted(count, "page")}`,
};
export const otherActivity = (count: number) => `used ${counted(count, "tool")}`;

function counted(count: number, noun: string): string {
  return count === 1 ? `one ${noun}` : `${count} ${noun}s`;
}

export const newFile = "new file";
export const sideBySide = "Side by side";
export const changesTo = (path: string) => `Changes to ${path}`;
/** `size`: of the end of a long line. */
export const restOfLine = (size: string) => `… (${size} more)`;
export const unchangedLines = (count: number) => (count === 1 ? "1 unchanged line" : `${count} unchanged lines`);

export const terminal = (id: string) => `Terminal ${id}`;
export const earlierLines = (count: number) => `Show ${count === 1 ? "one earlier line" : `${count} earlier lines`}`;
/** `size`: of the earlier part. */
export const earlierPart = (size: string) => `Show more of the earlier ${size}`;
export const earlierIsGone = "What came earlier is not held here.";
export const commandOutput = "Output of the command";
export const running = "running";
export const endedBy = (signal: string) => `ended by ${signal}`;
export const ended = "ended";
export const exit = (code: number) => `exit ${code}`;
