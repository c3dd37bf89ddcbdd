// The state of a session on the page: only the result of folding its log.

import type { Command, ConfigOption, ContentBlock, ModeSelection, Problem, Raw, SessionModes } from "../types.js";

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
  /** Commands that the agent ran by itself, by their terminal ids. */
  commands?: Record<string, Terminal>;
}

export interface PlanEntry {
  content: string;
  priority?: string;
  status: string;
}

export interface PlanItem {
  kind: "plan";
  key: string;
  /** Null for the one plan without a name. */
  planId: string | null;
  entries: PlanEntry[];
  /** A plan may be a text or a file instead of steps. */
  markdown: string | null;
  uri: string | null;
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
  /** The action of the answer to a form or a URL elicitation. */
  action: string | null;
  /** It was answered with an error. */
  refused: boolean;
}

export interface RequestItem {
  kind: "request";
  key: string;
  requestId: string;
  method: string;
  params: Raw;
  options: PermissionOption[];
  /** The tool call that it is about, as far as the question itself shows it. */
  toolCall: Raw | null;
  toolCallId: string | null;
  title: string;
  description: string | null;
  deadline: string | null;
  /** Another client alone can answer. */
  reserved: boolean;
  resolution: Resolution | null;
  /** The page that was to be opened is done with. */
  done: boolean;
}

/** `agent`: the agent sent the note. The others are events of the session. */
export type NoteCause = "agent" | "context_lost" | "privileged_mode" | "agent_exited" | "agent_disconnected";

export interface NoteItem {
  kind: "note";
  key: string;
  severity: "info" | "warning" | "error";
  cause: NoteCause;
  /** The agent's words, the reason of a lost context, or the name of a mode. */
  text: string;
  detail?: string;
}

export interface CompactionItem {
  kind: "compaction";
  key: string;
  compactionId: string;
  status: string;
  summary: ContentBlock[];
  error: string | null;
}

/** The place of a terminal that no tool call shows. */
export interface TerminalItem {
  kind: "terminal";
  key: string;
  terminalId: string;
}

/** A message between the session and one of its subagents. */
export interface RelayItem {
  kind: "relay";
  key: string;
  messageId: string;
  from: string | null;
  to: string | null;
  blocks: ContentBlock[];
}

/** A subagent with its messages and actions. */
export interface SubagentItem {
  kind: "subagent";
  key: string;
  subagent: string;
  title: string | null;
  description: string | null;
  state: string | null;
  items: Item[];
}

export type Item =
  | MessageItem
  | ToolItem
  | PlanItem
  | RequestItem
  | NoteItem
  | CompactionItem
  | TerminalItem
  | RelayItem
  | SubagentItem;

/** `removed`: cancelled before it began. */
export type TurnStatus = "queued" | "running" | "completed" | "failed" | "removed" | "between";

/** A prompt and its results. `between` contains the agent's messages outside of turns. */
export interface Turn {
  key: string;
  promptId: string | null;
  status: TurnStatus;
  prompt: ContentBlock[];
  by: string | null;
  createdAt: string;
  endedAt: string | null;
  stopReason: string | null;
  /** Why the gateway cancelled the turn. */
  cancelCause: string | null;
  problem: Problem | null;
  /** Earlier parts of the turn were not read. */
  cut: boolean;
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
  /** The last of it. */
  output: string;
  /** Its beginning is not held any more. */
  cut: boolean;
  exited: boolean;
  exitCode: number | null;
  signal: string | null;
}

export interface SessionLog {
  epoch: string | null;
  /** The number of the last event. */
  seq: number;
  /** The number of the last event before those that were read. 0: the log was read from its beginning. */
  start: number;
  /** Events belong to turns whose beginning was not read. They are not in the log. */
  incomplete: boolean;
  agent: string | null;
  title: string | null;
  /** A person's title outranks the agent's. */
  titleByPerson: boolean;
  cwd: string | null;
  closed: boolean;
  deleted: boolean;
  modes: SessionModes | null;
  configOptions: ConfigOption[];
  /** What no client can select. */
  deniedModes: ModeSelection[];
  commands: Command[];
  usage: Usage | null;
  /** The types of content that the agent accepts in messages. */
  promptCapabilities: Raw | null;
  terminals: Record<string, Terminal>;
  turns: Turn[];
}

export const EMPTY: SessionLog = {
  epoch: null,
  seq: 0,
  start: 0,
  incomplete: false,
  agent: null,
  title: null,
  titleByPerson: false,
  cwd: null,
  closed: false,
  deleted: false,
  modes: null,
  configOptions: [],
  deniedModes: [],
  commands: [],
  usage: null,
  promptCapabilities: null,
  terminals: {},
  turns: [],
};

export function runningTurn(log: SessionLog): Turn | null {
  return log.turns.findLast((turn) => turn.status === "running") ?? null;
}

/** The requests that this page can answer. */
export function openRequests(log: SessionLog): RequestItem[] {
  const isOpen = (item: Item): item is RequestItem => item.kind === "request" && item.resolution === null && !item.reserved;
  return log.turns.flatMap((turn) => turn.items.filter(isOpen));
}

/** The card of the tool call that a request is about. */
export function toolOf(log: SessionLog, request: RequestItem): ToolItem | null {
  const items = log.turns.flatMap((turn) => turn.items.flatMap((item) => (item.kind === "subagent" ? item.items : [item])));
  const found = items.findLast((item) => item.kind === "tool" && item.toolCallId === request.toolCallId);
  return found?.kind === "tool" ? found : null;
}

export function blocksText(blocks: ContentBlock[]): string {
  return blocks.map((block) => (block.type === "text" ? (block.text ?? "") : "")).join("");
}

/** The text of the agent's messages in a turn, without thoughts, tool calls and subagents. */
export function answerText(turn: Turn): string {
  return turn.items.map((item) => (item.kind === "message" ? blocksText(item.blocks) : "")).join("");
}
