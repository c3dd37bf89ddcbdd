// The types of the API. All are derived from `schema.ts`, which is generated from the OpenAPI document. `Answer` and `Body` have
// each of its schemas. The other types are those with another name or a narrower member. Raw pieces of ACP are in `acp.ts`.

import type { AuthMethod, ContentBlock, Raw } from "./acp.js";
import type { Open } from "./open.js";
import type { components } from "./schema.js";

export * from "./acp.js";

type Schemas = components["schemas"];

/** A body of an answer, by its name in the OpenAPI document. */
export type Answer<Name extends keyof Schemas> = Open<Schemas[Name]>;
/** A body of a request, by its name in the OpenAPI document. */
export type Body<Name extends keyof Schemas> = Schemas[Name];

/** The gateway and the rights of the key. */
export interface About extends Open<Schemas["GatewayInfo"]> {}

export interface Agent extends Open<Schemas["Agent"]> {}
export interface AgentStatus extends Open<Schemas["AgentStatus"]> {}
/** A session in the agent's own store. */
export interface AgentSession extends Open<Schemas["AgentSession"]> {}
export interface AgentSessionPage extends Omit<Open<Schemas["AgentSessionList"]>, "sessions"> {
  sessions: AgentSession[];
}
export interface AgentAuth extends Open<Schemas["AgentAuth"]> {}
export interface AgentProcess extends Open<Schemas["AgentProcess"]> {}
/** An agent of the registry. */
export interface InstallableAgent extends Open<Schemas["InstallableAgent"]> {}
export interface InstallableAgentPage extends Open<Schemas["InstallableAgentList"]> {}
export interface AgentOnPath extends Open<Schemas["AgentOnPath"]> {}
export interface Installation extends Open<Schemas["Installation"]> {}
export interface InstallationState extends Open<Schemas["InstallationState"]> {}
export type NewInstallation = Schemas["NewInstallation"];

/** A mode, or a value of an option (an option that is switched on has no value). */
export interface ModeSelection extends Open<Schemas["ModeSelection"]> {}

export type SessionState = Session["state"];
/** A session with all that its log says at `lastEventId`. */
export interface Session extends Open<Schemas["Session"]> {}
/** A session in a list. */
export interface SessionSummary extends Open<Schemas["SessionSummary"]> {}
export interface SessionPage extends Omit<Open<Schemas["SessionList"]>, "sessions"> {
  sessions: SessionSummary[];
}
/** A title, and members of the metadata: at most 64 members and 64 KiB of JSON. Null removes a member. */
export type SessionChange = Schemas["SessionPatch"];
/** What a user may do with a session. Each level includes the ones before it. */
export type Access = Schemas["KnownAccess"];
export interface Grant extends Open<Schemas["Grant"]> {}
/** The owner of a session, and the access of others. */
export interface SessionGrants extends Omit<Open<Schemas["SessionGrants"]>, "grants"> {
  grants: Grant[];
}
/** A key without its secret. */
export interface Key extends Open<Schemas["KeyInfo"]> {}
export interface KeyPage extends Open<Schemas["KeyList"]> {}
/** Without `scopes` or `expiresAt`, the key gets those of the key of the request. */
export type NewKey = Schemas["CreateKey"];
/** A key with its secret, which no later response contains. */
export interface CreatedKey extends Open<Schemas["CreatedKey"]> {}
export interface BulkResults extends Open<Schemas["BulkResults"]> {}
export interface Transcript extends Open<Schemas["Transcript"]> {}

/** A message for the agent: a text, or content blocks. With `attachments` (files of the session) at most 10 MiB. */
export interface NewPrompt extends Omit<Schemas["CreatePrompt"], "prompt"> {
  prompt: string | ContentBlock[];
}
/** A session, and with `prompt` its first turn in the same request. */
export interface NewSession extends Omit<Schemas["CreateSession"], "prompt"> {
  prompt?: NewPrompt["prompt"] | null;
}
export interface NewTask extends Omit<Schemas["CreateTask"], "prompt"> {
  prompt: NewPrompt["prompt"];
}

/** A turn: its state, and the text of its messages. */
export interface Prompt extends Omit<Open<Schemas["Prompt"]>, "error"> {
  error: Problem | null;
}
/** A change of a queued prompt: its content, and its place (`before`: another queued prompt, or null for the end). */
export interface PromptChange extends Omit<Schemas["PromptPatch"], "prompt"> {
  prompt?: NewPrompt["prompt"];
}
export interface PromptPage extends Open<Schemas["PromptList"]> {}

/** The prompts that a cancel reached. */
export type Cancelled = Schemas["Cancelled"];

/** A question of the agent that is not answered yet. */
export interface PendingRequest extends Open<Schemas["PendingRequest"]> {}
export type PermissionAnswer = Schemas["PermissionAnswer"];
/** The answer to a form or a URL elicitation. */
export type ElicitationAnswer = { action: "accept"; content?: Raw } | { action: "decline" } | { action: "cancel" };
export type RequestAnswer = Schemas["RequestAnswer"];
export type RpcCall = Schemas["RpcCall"];

/** One-shot work in a session of its own. */
export interface Task extends Omit<Open<Schemas["Task"]>, "result"> {
  result: (Omit<Open<Schemas["TaskResult"]>, "error"> & { error?: Problem }) | null;
}
export interface TaskPage extends Omit<Open<Schemas["TaskList"]>, "tasks"> {
  tasks: Task[];
}

export interface Folder extends Open<Schemas["WorkspaceFolder"]> {}
/** The folders in a folder; `path` is null for the roots. */
export interface FolderPage extends Open<Schemas["WorkspaceFolderList"]> {}
/** A file or a folder of a session. */
export interface FileEntry extends Open<Omit<Schemas["FileEntry"], "type">> {
  type: Schemas["FileEntry"]["type"] | (string & {});
}
export interface FilePage extends Omit<Open<Schemas["FileList"]>, "files"> {
  files: FileEntry[];
}
/** A file that differs from the start of the session. */
export interface FileChange extends Open<Schemas["FileChange"]> {}
export interface FileChangeList extends Omit<Open<Schemas["FileChangeList"]>, "files"> {
  files: FileChange[];
}
/** The texts of a changed file at the start of the session and now. */
export interface FileChangeText extends Open<Schemas["FileChangeText"]> {}
/** A terminal that the gateway runs for the agent. `Terminal` is its state in a folded log. */
export interface TerminalInfo extends Open<Schemas["Terminal"]> {}
export interface TerminalPage extends Open<Schemas["TerminalList"]> {}
export interface TerminalWindow extends Open<Schemas["TerminalWindow"]> {}
export interface Ticket extends Open<Schemas["Ticket"]> {}

/**
 * RFC 9457, with the gateway's list of codes. A proxy in front of the gateway can answer with an error of its own, so only `code`
 * is certain.
 */
export interface Problem extends Partial<Omit<Open<Schemas["Problem"]>, "code" | "authMethods">> {
  code: Schemas["ProblemCode"] | (string & {});
  authMethods?: AuthMethod[] | null;
}
