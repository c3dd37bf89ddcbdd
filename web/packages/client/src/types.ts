// The part of the gateway's REST API that this page uses. Unused members are omitted. Every enum is open: within /v1
// the server may add members, event types and values at any time.

/** A raw piece of ACP: passed on as the agent sent it, so nothing about it is certain. */
export type Raw = Record<string, unknown>;

export interface Agent {
  name: string;
  /** Where the agent runs: `local`, `remote` or `fleet`. */
  kind?: string;
  /** The protocol of the agent: `acp`, `stream-json` or `early-acp`. */
  dialect?: string;
  status?: AgentStatus;
  title?: string | null;
  version?: string | null;
  agentInfo?: Raw | null;
  capabilities?: Raw | null;
}

/** An agent of the registry, which the operator can install. */
export interface InstallableAgent {
  id: string;
  name: string;
  version: string;
  description: string;
  kinds: string[];
}

/** Whether the agent can start sessions. */
export interface AgentStatus {
  state: "available" | "unavailable" | "reconnecting" | "disconnected" | "draining" | (string & {});
  detail?: string | null;
}

export interface SessionMode {
  id: string;
  name: string;
  description?: string | null;
}

export interface SessionModes {
  currentModeId: string;
  availableModes: SessionMode[];
}

export interface ConfigChoice {
  value: string;
  name: string;
  description?: string | null;
}

export interface ConfigGroup {
  group: string;
  name: string;
  options: ConfigChoice[];
}

export interface ConfigOption {
  id: string;
  name: string;
  description?: string | null;
  category?: string | null;
  type: string;
  currentValue: string | boolean;
  options?: (ConfigChoice | ConfigGroup)[];
}

/** A mode, or a value of an option (an option that is switched on has no value). */
export interface ModeSelection {
  modeId?: string | undefined;
  configId?: string | undefined;
  value?: string | undefined;
}

export interface Command {
  name: string;
  description: string;
}

export type SessionState = "idle" | "running" | "waiting" | "closed" | (string & {});

export interface Session {
  sessionId: string;
  agent: string;
  title?: string | null;
  cwd?: string | null;
  state: SessionState;
  createdAt: string;
  updatedAt: string;
  /** The time of the last change of a turn or of a request. */
  lastActivityAt: string;
  /** The outcome of the turn that ended last. */
  lastOutcome?: string | null;
  modes?: SessionModes | null;
  configOptions?: ConfigOption[] | null;
  deniedModes?: ModeSelection[];
  availableCommands?: Command[] | null;
  attached?: boolean;
  promptCapabilities?: Raw | null;
  lastEventId?: string | null;
}

export interface SessionPage {
  sessions: Session[];
  nextCursor?: string | null;
}

export interface EventPage {
  events: unknown[];
  lastEventId: string;
  /** Whether further events exist. */
  more: boolean;
}

/** One-shot work in a session of its own. */
export interface Task {
  taskId: string;
  agent: string;
  description?: string | null;
  priority: string;
  status: "queued" | "running" | "completed" | "failed" | "cancelled" | "interrupted" | (string & {});
  sessionId?: string | null;
  by: string;
  createdAt: string;
  startedAt?: string | null;
  endedAt?: string | null;
  result?: { success: boolean; output: string; stopReason?: string | null; error?: Problem } | null;
}

export interface TaskPage {
  tasks: Task[];
  nextCursor?: string | null;
}

export interface Folder {
  path: string;
  name: string;
}

/** The folders in a folder; `path` is null for the roots. */
export interface FolderPage {
  path?: string | null;
  parent?: string | null;
  folders: Folder[];
  nextCursor?: string | null;
}

export interface Prompt {
  promptId: string;
  sessionId: string;
  status: string;
  lastEventId?: string | null;
}

/** The answer to a form or a URL elicitation. */
export type ElicitationAnswer = { action: "accept"; content?: Raw } | { action: "decline" } | { action: "cancel" };

export interface About {
  principal: { id: string };
  scopes: string[];
}

export interface AuthMethod {
  id: string;
  name: string;
  description?: string | null;
  type?: string;
}

/** RFC 9457, with the gateway's closed list of codes. */
export interface Problem {
  status?: number;
  code: string;
  title?: string;
  detail?: string | null;
  retryable?: boolean;
  retryAfterSeconds?: number | null;
  instance?: string | null;
  errors?: { pointer?: string; detail: string }[] | null;
  authMethods?: AuthMethod[] | null;
  acp?: { code: number; message: string; data?: unknown } | null;
  exitCode?: number | null;
  signal?: string | null;
  stderrTail?: string | null;
}

export interface ContentBlock {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
  uri?: string;
  name?: string;
  title?: string | null;
  resource?: { uri?: string; text?: string; blob?: string; mimeType?: string };
}

/** A file of a session. */
export interface FileEntry {
  path: string;
  name: string;
  type: string;
  size?: number | null;
}

export interface FilePage {
  files: FileEntry[];
  nextCursor?: string | null;
}

/** A file that differs from the start of the session. */
export interface FileChange {
  path: string;
  kind: "added" | "modified" | "deleted" | (string & {});
  additions: number | null;
  deletions: number | null;
  binary: boolean;
  tooLarge: boolean;
}

export interface FileChangeList {
  since: string;
  /** Whether the list has all changes. */
  complete: boolean;
  reason: string | null;
  files: FileChange[];
  more: boolean;
}

/** The texts of a changed file at the start of the session and now. */
export interface FileChangeText {
  path: string;
  kind: string;
  oldText: string | null;
  newText: string | null;
  etag: string | null;
}

/** A message for the agent. */
export interface NewPrompt {
  prompt: ContentBlock[];
  /** Files of the session. */
  attachments?: { path: string }[];
  queue?: boolean;
}

/** A new session. */
export interface NewSession {
  agent: string;
  cwd?: string;
  prompt?: ContentBlock[];
  /** The mode before the first prompt. */
  modeId?: string;
  /** Values of options before the first prompt, by their ids. */
  config?: Record<string, string | boolean>;
}

/** A session in the agent's own store. */
export interface AgentSession {
  agentSessionId: string;
  /** Its id in the gateway, if it was created or continued there. */
  sessionId: string | null;
  cwd: string;
  title?: string | null;
  updatedAt?: string | null;
}

export interface AgentSessionPage {
  sessions: AgentSession[];
  nextCursor?: string | null;
}

/** A request of an agent that waits for an answer. */
export interface PendingRequest {
  requestId: string;
  method: string;
  params: Raw;
  createdAt: string;
  deadline: string | null;
  acpClient?: string;
}

/** One event of the log, or one about the stream (`ready`, `position`, `reset`, `problem`, `shutdown`, `end`). */
export interface LogEvent {
  type: string;
  time: string;
  id?: string;
  seq?: number;
  sessionId?: string;
  promptId?: string;
  [member: string]: unknown;
}
