// The routes of one session: below `/v1/sessions/{session}`.

import type { ConfigOption, SessionModes } from "./acp.js";
import type { EventPage } from "./event.js";
import type { CallOptions, ConditionalCall, Http, RepeatableCall, Request, WaitingCall } from "./http.js";
import type {
  Access,
  Answer,
  Cancelled,
  ElicitationAnswer,
  FileChangeList,
  FileChangeText,
  FilePage,
  Grant,
  NewPrompt,
  PendingRequest,
  PermissionAnswer,
  Prompt,
  PromptChange,
  PromptPage,
  RequestAnswer,
  RpcCall,
  Session,
  SessionChange,
  SessionGrants,
  TerminalPage,
  TerminalWindow,
  Transcript,
} from "./types.js";

/** A page of a list: `nextCursor` of the answer is the `cursor` of the next page, and null on the last page. */
export interface PageQuery {
  cursor?: string | null | undefined;
  /** The number of entries: 1 to 200. The default is 50. */
  limit?: number | undefined;
}

export interface StreamCall extends CallOptions {
  /** The stream begins after this event. Null: at the first event. */
  lastEventId: string | null;
  /** Without it, the stream ends at the tail of the log. */
  follow: boolean;
}

export interface FileQuery extends PageQuery {
  /** The folder, relative to the session's `cwd`. The default is `cwd`. */
  path?: string | undefined;
  /** Only paths below the folder that contain this text, in any case. `*` and `?` make it a pattern for the whole path. */
  match?: string | undefined;
}

export interface WriteFileCall extends ConditionalCall {
  /** Writes only a file that does not exist; else 412 `precondition_failed`. */
  create?: boolean;
}

export class SessionRoutes {
  /** For classes that extend the client. */
  protected readonly http: Http;

  constructor(http: Http) {
    this.http = http;
  }

  session(session: string, call: CallOptions = {}): Promise<Session> {
    return this.http.call(`sessions/${encodeURIComponent(session)}`, { ...call });
  }

  /** Sets the title (at most 512 characters; null: that of the agent) or members of the metadata. Absent members keep their value. */
  changeSession(session: string, change: SessionChange, call: CallOptions = {}): Promise<Session> {
    return this.http.call(`sessions/${encodeURIComponent(session)}`, { ...call, method: "PATCH", body: change });
  }

  renameSession(session: string, title: string, call: CallOptions = {}): Promise<Session> {
    return this.changeSession(session, { title }, call);
  }

  /** Cancels the turn, closes the session, and erases its log and the folder that was created for it. */
  deleteSession(session: string, call: CallOptions = {}): Promise<void> {
    return this.http.call(`sessions/${encodeURIComponent(session)}`, { ...call, method: "DELETE" });
  }

  /** Starts a process for the session now, and opens a closed session again. 503 `pool_full` if all processes are busy for 20 s. */
  attach(session: string, call: CallOptions = {}): Promise<Session> {
    return this.#post(session, "attach", call);
  }

  /** Makes the agent begin a new conversation: it does not remember the earlier turns, and the log keeps them. 409 `turn_running` during a turn. */
  beginConversation(session: string, call: CallOptions = {}): Promise<Session> {
    return this.#post(session, "attach", { ...call, body: { context: "new" } });
  }

  /** Ends the process of the session and its queue. The log stays; prompts are 409 `session_closed` until `attach`. */
  close(session: string, call: CallOptions = {}): Promise<Session> {
    return this.#post(session, "close", call);
  }

  /** A new session with the history of this one. 501 if the agent cannot; 409 during a turn. */
  fork(session: string, call: RepeatableCall = {}): Promise<Session> {
    return this.#post(session, "fork", call);
  }

  /** The owner of a session, and the access of others. */
  grants(session: string, call: CallOptions = {}): Promise<SessionGrants> {
    return this.http.call(`${below(session)}/grants`, { ...call });
  }

  /**
   * Gives a user (`user:NAME`) or all users of the tenant (`tenant`) access to the session, in place of their earlier grant. Needs the
   * access `own`. 422 for a name without a key; 409 `last_owner` for the owner; 403 if the key has fewer scopes than it gives.
   */
  grant(session: string, grantee: string, access: Access, call: CallOptions = {}): Promise<Grant> {
    return this.http.call(grantPath(session, grantee), { ...call, method: "PUT", body: { access } });
  }

  /** Takes a grant back. The streams of users without another grant end at once. */
  revokeGrant(session: string, grantee: string, call: CallOptions = {}): Promise<void> {
    return this.http.call(grantPath(session, grantee), { ...call, method: "DELETE" });
  }

  /**
   * Sends a message, and returns when the gateway has accepted it; the answer of the agent is in the events. A running turn is 409
   * `turn_running`, unless the message is queued (`queue`: up to 8). With `waitSeconds`, the result has the text of the answer.
   */
  prompt(session: string, message: string | NewPrompt, call: RepeatableCall & WaitingCall = {}): Promise<Prompt> {
    const body = typeof message === "string" ? { prompt: message } : message;
    return this.#post(session, "prompts", { ...call, body });
  }

  /** Sends a message. The response is the stream of the turn's events, for `eventsOf`. A lost connection does not end the turn. */
  promptStream(session: string, message: string | NewPrompt, call: RepeatableCall = {}): Promise<Response> {
    const body = typeof message === "string" ? { prompt: message } : message;
    const headers = { Accept: "text/event-stream" };
    return this.http.checked(`${below(session)}/prompts/stream`, { ...call, method: "POST", body, headers });
  }

  /** The prompts of a session, newest first. */
  prompts(session: string, page: PageQuery = {}, call: CallOptions = {}): Promise<PromptPage> {
    return this.http.call(`${below(session)}/prompts`, { ...call, query: { ...page } });
  }

  /** The state of a turn and the text of its messages, up to 8 MiB. */
  promptState(session: string, prompt: string, call: WaitingCall = {}): Promise<Prompt> {
    return this.http.call(`${below(session)}/prompts/${encodeURIComponent(prompt)}`, { ...call });
  }

  /** Changes a queued prompt. 409 `prompt_not_queued` after its start. */
  changePrompt(session: string, prompt: string, change: PromptChange, call: CallOptions = {}): Promise<Prompt> {
    return this.http.call(`${below(session)}/prompts/${encodeURIComponent(prompt)}`, { ...call, method: "PATCH", body: change });
  }

  /** Cancels the running turn and the queue. Undefined if there was nothing to cancel. */
  cancel(session: string, call: CallOptions = {}): Promise<Cancelled | undefined> {
    return this.#post(session, "cancel", call);
  }

  /** Cancels a running or a queued prompt. Undefined if it has ended. */
  cancelPrompt(session: string, prompt: string, call: CallOptions = {}): Promise<Cancelled | undefined> {
    return this.#post(session, `prompts/${encodeURIComponent(prompt)}/cancel`, call);
  }

  /** Asks the agent to cancel one tool call. Not every agent can. */
  cancelToolCall(session: string, toolCall: string, call: CallOptions = {}): Promise<void> {
    return this.#post(session, `tool-calls/${encodeURIComponent(toolCall)}/cancel`, call);
  }

  /** The questions of the agent that are not answered. */
  async requests(session: string, call: CallOptions = {}): Promise<PendingRequest[]> {
    const page = await this.http.call<Answer<"PendingRequests">>(`${below(session)}/requests`, { ...call });
    return page.requests;
  }

  /** Selects an option, or cancels. A request that is answered already is 409 `request_resolved`. */
  answerPermission(session: string, request: string, answer: PermissionAnswer, call: CallOptions = {}): Promise<void> {
    return this.#post(session, `permissions/${encodeURIComponent(request)}`, { ...call, body: answer });
  }

  /** Values that do not fit the form are 422 `invalid`, with a JSON pointer to each of them. */
  answerElicitation(session: string, request: string, answer: ElicitationAnswer, call: CallOptions = {}): Promise<void> {
    return this.#post(session, `elicitations/${encodeURIComponent(request)}`, { ...call, body: answer });
  }

  /** Answers any request with the result of the protocol or with an error. */
  answerRequest(session: string, request: string, answer: RequestAnswer, call: CallOptions = {}): Promise<void> {
    return this.#post(session, `requests/${encodeURIComponent(request)}`, { ...call, body: answer });
  }

  /** `modeId`: one of `session.modes`, except `session.deniedModes`. */
  setMode(session: string, modeId: string, call: CallOptions = {}): Promise<{ modes: SessionModes | null }> {
    return this.http.call(`${below(session)}/mode`, { ...call, method: "PUT", body: { modeId } });
  }

  /** Sets an option of `session.configOptions`. The result has all options, because one can change others. */
  setConfig(session: string, option: string, value: string | boolean, call: CallOptions = {}): Promise<{ configOptions: ConfigOption[] | null }> {
    return this.http.call(`${below(session)}/config/${encodeURIComponent(option)}`, { ...call, method: "PUT", body: { value } });
  }

  /** Calls a method of the agent for this session. Undefined for a notification (`notify`). */
  async rpc(session: string, request: RpcCall, call: CallOptions = {}): Promise<unknown> {
    return (await this.#post<{ result: unknown } | undefined>(session, "rpc", { ...call, body: request }))?.result;
  }

  /** The session and a page of its turns, newest first, folded by the gateway. `before`: the `nextCursor` of the page before. */
  transcript(session: string, page: { before?: string | null; limit?: number } = {}, call: CallOptions = {}): Promise<Transcript> {
    return this.http.call(`${below(session)}/transcript`, { ...call, query: page });
  }

  /** The same as Markdown. */
  transcriptMarkdown(session: string, page: { before?: string | null; limit?: number } = {}, call: CallOptions = {}): Promise<string> {
    return this.http.text(`${below(session)}/transcript/markdown`, { ...call, query: page, headers: { Accept: "text/markdown" } });
  }

  /**
   * The log as a stream of Server-Sent Events, with any status: some of them mean "try again". `SessionFeed` and `Follower` do this
   * and read the stream.
   */
  events(session: string, { lastEventId, follow, signal }: StreamCall): Promise<Response> {
    const headers = { Accept: "text/event-stream", ...(lastEventId ? { "Last-Event-ID": lastEventId } : {}) };
    return this.http.open(`${below(session)}/events`, { headers, signal, query: { follow: follow ? null : false } });
  }

  /**
   * A page of the log: 1 to 1000 events, by default 500, after the event `after`. `types`: types or prefixes such as `prompt.`.
   * With `waitSeconds` (at most 60), an empty page waits for an event.
   */
  eventPage(session: string, page: { after?: string | null; limit?: number; types?: string[] } = {}, call: WaitingCall = {}): Promise<EventPage> {
    return this.http.call(`${below(session)}/events`, { ...call, query: { ...page, types: page.types?.join(",") } });
  }

  /** A page of the events of a turn: 1 to 1000 events, by default 500, after the event `after`. */
  promptEventPage(session: string, prompt: string, { after, limit }: { after?: string | null; limit?: number } = {}, call: WaitingCall = {}): Promise<EventPage> {
    const headers = { Accept: "application/json", ...(after ? { "Last-Event-ID": after } : {}) };
    return this.http.call(`${below(session)}/prompts/${encodeURIComponent(prompt)}/events`, { ...call, headers, query: { limit } });
  }

  /** All events of a session up to now. */
  async allEvents(session: string, call: CallOptions = {}): Promise<EventPage["events"]> {
    const all: EventPage["events"] = [];
    for (let after: string | null = null; ; ) {
      const page: EventPage = await this.eventPage(session, { limit: 1000, after }, call);
      all.push(...page.events);
      if (!page.more) return all;
      after = page.lastEventId;
    }
  }

  /** Files and folders. Needs the scope `files`, like all methods for files. A search that reaches its limit can have a short page. */
  files(session: string, query: FileQuery = {}, call: CallOptions = {}): Promise<FilePage> {
    return this.http.call(`${below(session)}/files`, { ...call, query: { ...query, match: query.match || null } });
  }

  /** The response has the bytes of a file, and its `ETag`. `range`: for example `bytes=0-1023`; past the end it is 416. */
  readFile(session: string, path: string, call: CallOptions & { range?: string } = {}): Promise<Response> {
    const headers = call.range === undefined ? {} : { Range: call.range };
    return this.http.checked(file(session, path), { signal: call.signal, headers });
  }

  /** Replaces the whole file, at most 16 MiB, and creates missing folders. */
  async writeFile(session: string, path: string, content: Blob | BufferSource | string, call: WriteFileCall = {}): Promise<void> {
    const headers = { "Content-Type": "application/octet-stream", ...(call.create ? { "If-None-Match": "*" } : {}) };
    await this.http.text(file(session, path), { signal: call.signal, ifMatch: call.ifMatch, method: "PUT", content, headers });
  }

  /** Deletes a file, an empty folder, or a link but not its target. */
  deleteFile(session: string, path: string, call: ConditionalCall = {}): Promise<void> {
    return this.http.call(file(session, path), { ...call, method: "DELETE" });
  }

  /** The files in `cwd` that differ from the start of the session, at most 500, also after changes by commands. */
  changes(session: string, call: CallOptions = {}): Promise<FileChangeList> {
    return this.http.call(`${below(session)}/changes`, { ...call });
  }

  /** The texts of a changed file at the start and now, each at most 1 MiB. 404 if it has not changed. */
  change(session: string, path: string, call: CallOptions = {}): Promise<FileChangeText> {
    return this.http.call(file(session, path, "changes"), { ...call });
  }

  /** Gives a file the state of the start, if it still has this ETag. Null: if it does not exist. */
  async revertChange(session: string, path: string, etag: string | null, call: CallOptions = {}): Promise<void> {
    const condition = etag === null ? { headers: { "If-None-Match": "*" } } : { ifMatch: etag };
    await this.http.text(file(session, path, "changes"), { ...call, ...condition, method: "DELETE" });
  }

  /** The terminals that the gateway runs for the agent. */
  terminals(session: string, page: PageQuery = {}, call: CallOptions = {}): Promise<TerminalPage> {
    return this.http.call(`${below(session)}/terminals`, { ...call, query: { ...page } });
  }

  /** A terminal with the end of its output. */
  terminal(session: string, terminal: string, call: CallOptions = {}): Promise<TerminalWindow> {
    return this.http.call(`${below(session)}/terminals/${encodeURIComponent(terminal)}`, { ...call });
  }

  killTerminal(session: string, terminal: string, call: CallOptions = {}): Promise<void> {
    return this.#post(session, `terminals/${encodeURIComponent(terminal)}/kill`, call);
  }

  /** Asks the agent to end a command that it runs by itself. */
  cancelAgentTerminal(session: string, terminal: string, call: CallOptions = {}): Promise<void> {
    return this.#post(session, `agent-terminals/${encodeURIComponent(terminal)}/cancel`, call);
  }

  /** The end of the stderr of the session's process. */
  stderr(session: string, call: CallOptions = {}): Promise<string> {
    return this.http.text(`${below(session)}/stderr`, { ...call, headers: { Accept: "text/plain" } });
  }

  #post<T>(session: string, path: string, request: Request): Promise<T> {
    return this.http.call(`${below(session)}/${path}`, { ...request, method: "POST" });
  }
}

function below(session: string): string {
  return `sessions/${encodeURIComponent(session)}`;
}

function grantPath(session: string, grantee: string): string {
  return `${below(session)}/grants/${encodeURIComponent(grantee)}`;
}

/** An absolute path begins with `%2F`, because a proxy may merge slashes. */
function file(session: string, path: string, kind: "files" | "changes" = "files"): string {
  const relative = path.split("/").map(encodeURIComponent).join("/").replace(/^\//, "%2F");
  return `${below(session)}/${kind}/${relative}`;
}
