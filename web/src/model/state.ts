// What the page knows of a session: the result of folding its log, and nothing else.

import type { Command, ConfigOption, ContentBlock, Problem, Raw, SessionModes } from "../api/types";

export interface MessageItem {
  kind: "message" | "thought" | "user";
  key: string;
  messageId: string | null;
  blocks: ContentBlock[];
  startedAt: string;
  endedAt: string;
}

export interface ToolLocation {
  path: string;
  line?: number | null;
}

export interface ToolItem {
  kind: "tool";
  key: string;
  toolCallId: string;
  title: string;
  toolKind: string;
  status: string;
  content: Raw[];
  locations: ToolLocation[];
  rawInput?: unknown;
  rawOutput?: unknown;
}

export interface PlanEntry {
  content: string;
  priority?: string;
  status: string;
}

export interface PlanItem {
  kind: "plan";
  key: string;
  entries: PlanEntry[];
}

export interface PermissionOption {
  optionId: string;
  name: string;
  kind: string;
}

export interface Resolution {
  how: string;
  by: string | null;
  /** The chosen option, when one was chosen. */
  optionId: string | null;
}

export interface RequestItem {
  kind: "request";
  key: string;
  requestId: string;
  method: string;
  params: Raw;
  options: PermissionOption[];
  toolCallId: string | null;
  title: string;
  deadline: string | null;
  resolution: Resolution | null;
}

export interface NoteItem {
  kind: "note";
  key: string;
  severity: "info" | "warning" | "error";
  text: string;
  detail?: string;
}

export type Item = MessageItem | ToolItem | PlanItem | RequestItem | NoteItem;

export type TurnStatus = "queued" | "running" | "completed" | "failed" | "between";

/** A prompt and all that came of it. `between` holds what the agent said outside of any turn. */
export interface Turn {
  key: string;
  promptId: string | null;
  status: TurnStatus;
  prompt: ContentBlock[];
  by: string | null;
  createdAt: string;
  endedAt: string | null;
  stopReason: string | null;
  problem: Problem | null;
  items: Item[];
}

export interface Usage {
  used: number;
  size: number;
  cost?: { amount: number; currency: string } | null;
}

export interface Terminal {
  terminalId: string;
  command: string;
  output: string;
  exited: boolean;
  exitCode: number | null;
}

export interface SessionLog {
  epoch: string | null;
  seq: number;
  agent: string | null;
  title: string | null;
  /** A person's title outranks the agent's. */
  titleByPerson: boolean;
  cwd: string | null;
  closed: boolean;
  deleted: boolean;
  modes: SessionModes | null;
  configOptions: ConfigOption[];
  commands: Command[];
  usage: Usage | null;
  terminals: Record<string, Terminal>;
  turns: Turn[];
}

export const EMPTY: SessionLog = {
  epoch: null,
  seq: 0,
  agent: null,
  title: null,
  titleByPerson: false,
  cwd: null,
  closed: false,
  deleted: false,
  modes: null,
  configOptions: [],
  commands: [],
  usage: null,
  terminals: {},
  turns: [],
};

export function runningTurn(log: SessionLog): Turn | null {
  return log.turns.findLast((turn) => turn.status === "running") ?? null;
}

export function openRequests(log: SessionLog): RequestItem[] {
  return log.turns.flatMap((turn) => turn.items.filter((item) => item.kind === "request" && item.resolution === null) as RequestItem[]);
}

export function blocksText(blocks: ContentBlock[]): string {
  return blocks.map((block) => (block.type === "text" ? (block.text ?? "") : "")).join("");
}
