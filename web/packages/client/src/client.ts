// The routes of the gateway that a frontend needs. Those of one session are in `sessionRoutes.ts`.

import { type CallOptions, Http, type RepeatableCall, type WaitingCall } from "./http.js";
import type { MergedCall } from "./log/leader.js";
import { SharedConnection } from "./log/sharedConnection.js";
import { type PageQuery, SessionRoutes } from "./sessionRoutes.js";
import type {
  About,
  Agent,
  AgentAuth,
  AgentProcess,
  AgentSessionPage,
  Answer,
  BulkResults,
  CreatedKey,
  FolderPage,
  InstallableAgentPage,
  Installation,
  InstallationState,
  KeyPage,
  NewInstallation,
  NewKey,
  NewSession,
  NewTask,
  Session,
  SessionPage,
  SessionState,
  Task,
  TaskPage,
  Ticket,
} from "./types.js";

export interface GatewayClientOptions {
  /** The address of the gateway. All routes are below it. Without it, the folder of the page. */
  url?: string;
  key: string;
  /** Called when the gateway refuses the key: no further request can succeed. */
  onUnauthorized?(): void;
}

/** Filters of sessions, which all have to match. */
export interface SessionFilter {
  agent?: string | undefined;
  state?: SessionState | undefined;
  /** The working folder. */
  cwd?: string | undefined;
  /** Members of the metadata and their values as text: at most 8. */
  metadata?: Record<string, string | number | boolean> | undefined;
}

export interface SessionQuery extends SessionFilter, PageQuery {
  /** A part of the title or of the id, in any case: at most 256 characters. */
  search?: string | undefined;
  /** Whether the list contains the sessions of tasks. */
  tasks?: boolean | undefined;
  /** Lists the sessions that others share with the user, in place of the user's own sessions. */
  shared?: boolean | undefined;
}

export interface TaskQuery extends PageQuery {
  agent?: string | undefined;
  status?: Task["status"] | undefined;
  /** The task that created the tasks. */
  parent?: string | undefined;
}

/** A stream for `EventSource`. */
export interface EventsUrlQuery extends CallOptions {
  /** The id of the last event that the page has, or `tail`. Without it, a session's stream begins with its first event. */
  after?: string | undefined;
  /** Only these types, or prefixes such as `prompt.`. */
  types?: string[] | undefined;
  /** Whether each type is an event of its own of the `EventSource`. Without it, `onmessage` gets all of them. */
  named?: boolean;
}

/**
 * A client of one gateway with one key. Each method rejects with `ApiProblem` (the gateway refused), with `Unreachable` (no complete
 * answer in 90 s, or no connection), or with the reason of the caller's `signal`. A method does not repeat a request.
 */
export class GatewayClient extends SessionRoutes {
  readonly #key: string;

  constructor({ url = ".", key, onUnauthorized }: GatewayClientOptions) {
    super(new Http({ url, key, onUnauthorized }));
    this.#key = key;
  }

  /** The connection that all tabs with this key share, or null if the browser cannot share one here. */
  sharedConnection(): SharedConnection | null {
    return SharedConnection.of(this.#key, this.http.base.href, (cursors, call) => this.mergedEvents(cursors, call));
  }

  /** The gateway, the rights of this key and its limits. */
  about(call: CallOptions = {}): Promise<About> {
    return this.http.call("../v1", { ...call });
  }

  async agents(call: CallOptions = {}): Promise<Agent[]> {
    const page = await this.http.call<{ agents: Agent[] }>("agents", { ...call });
    return page.agents;
  }

  agent(agent: string, call: CallOptions = {}): Promise<Agent> {
    return this.http.call(`agents/${encodeURIComponent(agent)}`, { ...call });
  }

  /** The processes of an agent, with their sessions and turns. */
  async agentProcesses(agent: string, call: CallOptions = {}): Promise<AgentProcess[]> {
    const page = await this.http.call<{ processes: AgentProcess[] }>(`agents/${encodeURIComponent(agent)}/status`, { ...call });
    return page.processes;
  }

  /** The sessions in the agent's own store, below the workspace roots. `createSession` with `agentSessionId` continues one. */
  agentSessions(agent: string, page: { cursor?: string | null; cwd?: string } = {}, call: CallOptions = {}): Promise<AgentSessionPage> {
    return this.http.call(`agents/${encodeURIComponent(agent)}/sessions`, { ...call, query: { ...page } });
  }

  /**
   * The agents of the registry, if the configuration names one. `default` lets the gateway load the registry of the ACP project
   * otherwise. Needs the scope `admin`.
   */
  installableAgents(query: { default?: boolean } = {}, call: CallOptions = {}): Promise<InstallableAgentPage> {
    return this.http.call("registry", { ...call, query: { ...query } });
  }

  /** The agents that can be added without a download, and the latest installation. Needs the scope `admin`. */
  installation(call: CallOptions = {}): Promise<InstallationState> {
    return this.http.call("installation", { ...call });
  }

  /** Adds an agent to the configuration. `installation` has its progress. Needs the scope `admin`. */
  install(agent: NewInstallation, call: CallOptions = {}): Promise<Installation> {
    return this.http.call("installation", { ...call, method: "POST", body: agent });
  }

  /** The state of the gateway, with masked secrets. This route and the next ones need the scope `admin`. */
  diagnostics(call: CallOptions = {}): Promise<Answer<"Diagnostics">> {
    return this.http.call("diagnostics", { ...call });
  }

  /** The same as text, for a file. */
  diagnosticsText(call: CallOptions = {}): Promise<string> {
    return this.http.text("diagnostics", { ...call });
  }

  /** The keys of the user. A key with the scope `admin` gets those of all users. */
  keys(page: PageQuery = {}, call: CallOptions = {}): Promise<KeyPage> {
    return this.http.call("keys", { ...call, query: { ...page } });
  }

  /** 403 if the new key would have more rights than the key of the request; 422 for an invalid name. */
  createKey(key: NewKey, call: CallOptions = {}): Promise<CreatedKey> {
    return this.http.call("keys", { ...call, method: "POST", body: key });
  }

  /** Replaces the secret of a key. The previous secret ends at once. */
  rotateKey(keyId: string, call: CallOptions = {}): Promise<CreatedKey> {
    return this.http.call(`keys/${encodeURIComponent(keyId)}/rotate`, { ...call, method: "POST" });
  }

  /** 403 if the key has more rights than the key of the request. */
  revokeKey(keyId: string, call: CallOptions = {}): Promise<void> {
    return this.http.call(`keys/${encodeURIComponent(keyId)}`, { ...call, method: "DELETE" });
  }

  /** The members of the fleet, also those that are not connected. */
  fleet(call: CallOptions = {}): Promise<Answer<"FleetMemberList">> {
    return this.http.call("fleet", { ...call });
  }

  webhooks(call: CallOptions = {}): Promise<Answer<"WebhookList">> {
    return this.http.call("webhooks", { ...call });
  }

  /** Deliveries of webhooks, newest first. */
  webhookDeliveries(page: PageQuery = {}, call: CallOptions = {}): Promise<Answer<"WebhookDeliveryList">> {
    return this.http.call("webhooks/deliveries", { ...call, query: { ...page } });
  }

  /** A page of the audit log, with the parameters of `eventPage`. */
  audit(page: { after?: string; limit?: number; types?: string[] } = {}, call: WaitingCall = {}): Promise<Answer<"AuditPage">> {
    return this.http.call("audit", { ...call, query: { ...page, types: page.types?.join(",") } });
  }

  /** The folders in a folder, or the workspace roots, in pages of 50. */
  folders(path: string | null, page: PageQuery = {}, call: CallOptions = {}): Promise<FolderPage> {
    return this.http.call("workspaces", { ...call, query: { path, ...page } });
  }

  /** Sessions, the latest activity first, in pages of 50. */
  sessions(query: SessionQuery = {}, call: CallOptions = {}): Promise<SessionPage> {
    const { search, tasks, shared, cursor, limit } = query;
    return this.http.call("sessions", { ...call, query: { ...filters(query), q: search, tasks, shared, cursor, limit } });
  }

  /**
   * Starts a session, and with `prompt` its first turn: the turn has begun when the session is returned. `modeId` and `config`, which
   * need the scope `approve`, are set before. Without `cwd` the gateway creates a folder. Usual problems: `agent_start_failed` (502),
   * `agent_auth_required` (424, with `authMethods`), `pool_full` (503) and `invalid` (422).
   */
  createSession(session: NewSession, call: RepeatableCall = {}): Promise<Session> {
    return this.http.call("sessions", { ...call, method: "POST", body: session });
  }

  /** Closes up to `limit` (1 to 100) sessions. Without a filter it is 422. Repeat with `cursor` until `nextCursor` is null. */
  closeSessions(filter: SessionFilter, page: PageQuery = {}, call: CallOptions = {}): Promise<BulkResults> {
    return this.http.call("sessions/close", { ...call, method: "POST", query: { ...filters(filter), ...page } });
  }

  /** Deletes sessions, in the same batches. */
  deleteSessions(filter: SessionFilter, page: PageQuery = {}, call: CallOptions = {}): Promise<BulkResults> {
    return this.http.call("sessions", { ...call, method: "DELETE", query: { ...filters(filter), ...page } });
  }

  /** Tasks, newest first, in pages of 50. */
  tasks(query: TaskQuery = {}, call: CallOptions = {}): Promise<TaskPage> {
    return this.http.call("tasks", { ...call, query: { ...query } });
  }

  task(task: string, call: WaitingCall = {}): Promise<Task> {
    return this.http.call(`tasks/${encodeURIComponent(task)}`, { ...call });
  }

  /** Hands work to an agent. With `waitSeconds`, the result is the ended task if it ends in time. */
  createTask(task: NewTask, call: RepeatableCall & WaitingCall = {}): Promise<Task> {
    return this.http.call("tasks", { ...call, method: "POST", body: task });
  }

  cancelTask(task: string, call: CallOptions = {}): Promise<Task> {
    return this.http.call(`tasks/${encodeURIComponent(task)}/cancel`, { ...call, method: "POST" });
  }

  /** Whether a person has signed in to an agent, and how one can. */
  signInState(agent: string, call: CallOptions = {}): Promise<AgentAuth> {
    return this.http.call(`agents/${encodeURIComponent(agent)}/auth`, { ...call });
  }

  /** Undefined if the sign-in is complete, otherwise the path of its terminal. Needs the scope `admin`. */
  signIn(agent: string, methodId: string, apiKey?: string, call: CallOptions = {}): Promise<{ url: string } | undefined> {
    const body = apiKey === undefined ? { methodId } : { methodId, apiKey };
    return this.http.call(`agents/${encodeURIComponent(agent)}/auth`, { ...call, method: "POST", body });
  }

  /** Needs the scope `admin`. */
  signOut(agent: string, call: CallOptions = {}): Promise<void> {
    return this.http.call(`agents/${encodeURIComponent(agent)}/auth`, { ...call, method: "DELETE" });
  }

  /** The terminal of a sign-in. It uses a ticket instead of the key, because a URL must not contain the key. */
  async signInTerminal(url: string, call: CallOptions = {}): Promise<WebSocket> {
    const root = new URL("../", this.http.base);
    const named = new URL(url, root).pathname;
    // The answer can have the path of the gateway, below which a proxy may have another one.
    const path = named.startsWith(root.pathname) ? `/${named.slice(root.pathname.length)}` : named;
    const { ticket } = await this.ticket([path], call);
    const address = new URL(`.${path}`, root);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("ticket", ticket);
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    return socket;
  }

  /**
   * A ticket, which replaces the key in the URL of a stream: valid for 60 s until its first use, then with its stream and for 10
   * minutes after it. `paths`: 1 to 64 paths as the gateway has them, for example `/v1/events/stream`.
   */
  ticket(paths: string[], call: CallOptions = {}): Promise<Ticket> {
    return this.http.call("tickets", { ...call, method: "POST", body: { paths } });
  }

  /**
   * The address of a session's stream for the browser's `EventSource`, with a ticket. Open it within 60 s. `EventSource` reconnects
   * by itself; when it ends with an error (`readyState` 2), get another address with `after`: the last id.
   */
  sessionEventsUrl(session: string, query: EventsUrlQuery = {}): Promise<string> {
    return this.#eventsUrl(`sessions/${encodeURIComponent(session)}/events/stream`, query);
  }

  /** The same for several sessions (at most 256, each as its id or as `<id>@<event id>`), or for all sessions of the key. */
  allEventsUrl(query: EventsUrlQuery & { sessions?: string[] } = {}): Promise<string> {
    return this.#eventsUrl("events/stream", query);
  }

  async #eventsUrl(path: string, { after, types, named = false, sessions, signal }: EventsUrlQuery & { sessions?: string[] }): Promise<string> {
    const { ticket } = await this.ticket([`/v1/${path}`], { signal });
    return this.http.address(path, { session: sessions, after, types: types?.join(","), named, ticket }).href;
  }

  /**
   * The events of several sessions as one stream, each after the event that is given with it. `summaries`: also the changes of the
   * list of sessions. The response has any status.
   */
  mergedEvents(cursors: [session: string, lastEventId: string][], { lastEventId, signal, summaries = false }: MergedCall): Promise<Response> {
    const headers = { Accept: "text/event-stream", ...(lastEventId ? { "Last-Event-ID": lastEventId } : {}) };
    const query = { session: cursors.map(([session, after]) => `${session}@${after}`), summaries: summaries || undefined };
    return this.http.open("events", { headers, signal, query });
  }
}

function filters({ agent, state, cwd, metadata = {} }: SessionFilter): Record<string, string | undefined> {
  const members = Object.entries(metadata).map(([name, value]) => [`metadata.${name}`, String(value)]);
  return { agent, state, cwd, ...Object.fromEntries(members) };
}
