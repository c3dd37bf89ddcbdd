// Speaks the REST contract: adds the key, turns answers into values and refusals into `ApiProblem`.

import { problemOf, Unreachable } from "./problem";
import type { About, Agent, ConfigOption, ElicitationAnswer, EventPage, FileEntry, FolderPage, InstallableAgent, NewPrompt, Prompt, Session, SessionModes, SessionPage, Task, TaskPage } from "./types";

/** All routes lie below the page itself, so that a proxy may put both under a sub-path. */
const BASE = new URL("v1/", document.baseURI);

const DEADLINE_MS = 90_000;

interface Call {
  method?: string;
  body?: unknown;
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export interface StreamCall {
  lastEventId: string | null;
  /** Without it, the stream ends at the tail of the log. */
  follow: boolean;
  signal: AbortSignal;
}

export class Client {
  readonly #key: string;
  readonly #onRefused: () => void;

  /** `onRefused` is called when the key is not, or no longer, good: no call can succeed after that. */
  constructor(key: string, onRefused: () => void) {
    this.#key = key;
    this.#onRefused = onRefused;
  }

  async agents(signal?: AbortSignal): Promise<Agent[]> {
    const page = await this.#call<{ agents: Agent[] }>("agents", signal ? { signal } : {});
    return page.agents;
  }

  /** The agents of the registry, if the configuration names one. */
  installableAgents(): Promise<{ configured: boolean; agents: InstallableAgent[] }> {
    return this.#call("registry");
  }

  /** The folders in a folder, or the workspace roots. */
  folders(path: string | null, cursor: string | null, signal: AbortSignal): Promise<FolderPage> {
    const query = new URLSearchParams({ limit: "200", ...(path === null ? {} : { path }), ...(cursor === null ? {} : { cursor }) });
    return this.#call(`workspaces?${query}`, { signal });
  }

  sessions(): Promise<SessionPage> {
    return this.#call("sessions?limit=200");
  }

  /** `folder`: null lets the gateway create one. */
  createSession(agent: string, folder: string | null, idempotencyKey: string): Promise<Session> {
    const body = folder === null ? { agent } : { agent, cwd: folder };
    return this.#call("sessions", { method: "POST", body, idempotencyKey });
  }

  /** Tasks, newest first. */
  tasks(cursor: string | null, signal?: AbortSignal): Promise<TaskPage> {
    const query = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
    return this.#call(`tasks?limit=50${query}`, signal ? { signal } : {});
  }

  cancelTask(task: string): Promise<Task> {
    return this.#call(`tasks/${encodeURIComponent(task)}/cancel`, { method: "POST" });
  }

  renameSession(session: string, title: string): Promise<Session> {
    return this.#call(`sessions/${encodeURIComponent(session)}`, { method: "PATCH", body: { title } });
  }

  deleteSession(session: string): Promise<void> {
    return this.#call(`sessions/${encodeURIComponent(session)}`, { method: "DELETE" });
  }

  attach(session: string): Promise<Session> {
    return this.#call(`sessions/${encodeURIComponent(session)}/attach`, { method: "POST" });
  }

  close(session: string): Promise<Session> {
    return this.#call(`sessions/${encodeURIComponent(session)}/close`, { method: "POST" });
  }

  /** A new session with the history of this one. */
  fork(session: string, idempotencyKey: string): Promise<Session> {
    return this.#call(`sessions/${encodeURIComponent(session)}/fork`, { method: "POST", idempotencyKey });
  }

  /** The end of the stderr of the session's process. */
  async stderr(session: string, signal: AbortSignal): Promise<string> {
    const response = await this.#fetch(`sessions/${encodeURIComponent(session)}/stderr`, { headers: { Accept: "text/plain" }, signal });
    if (!response.ok) throw await problemOf(response);
    return response.text();
  }

  /** All events of a session up to now, as the log has them. */
  async allEvents(session: string): Promise<unknown[]> {
    const all: unknown[] = [];
    for (let after = ""; ; ) {
      const page = await this.#call<EventPage>(`sessions/${encodeURIComponent(session)}/events?limit=1000${after}`);
      all.push(...page.events);
      if (!page.more) return all;
      after = `&after=${encodeURIComponent(page.lastEventId)}`;
    }
  }

  prompt(session: string, body: NewPrompt, idempotencyKey: string): Promise<Prompt> {
    return this.#call(`sessions/${encodeURIComponent(session)}/prompts`, { method: "POST", body, idempotencyKey });
  }

  /** Files and folders of the session whose path contains this text, or the content of its folder. */
  async files(session: string, match: string, signal: AbortSignal): Promise<FileEntry[]> {
    const query = new URLSearchParams({ limit: "50", ...(match === "" ? {} : { match }) });
    const page = await this.#call<{ files: FileEntry[] }>(`sessions/${encodeURIComponent(session)}/files?${query}`, { signal });
    return page.files;
  }

  cancel(session: string): Promise<void> {
    return this.#call(`sessions/${encodeURIComponent(session)}/cancel`, { method: "POST" });
  }

  /** Cancels a running or a queued prompt. */
  cancelPrompt(session: string, prompt: string): Promise<void> {
    return this.#call(`sessions/${encodeURIComponent(session)}/prompts/${encodeURIComponent(prompt)}/cancel`, { method: "POST" });
  }

  answerPermission(session: string, request: string, answer: { optionId: string } | { cancelled: true }): Promise<void> {
    const path = `sessions/${encodeURIComponent(session)}/permissions/${encodeURIComponent(request)}`;
    return this.#call(path, { method: "POST", body: answer });
  }

  answerElicitation(session: string, request: string, answer: ElicitationAnswer): Promise<void> {
    const path = `sessions/${encodeURIComponent(session)}/elicitations/${encodeURIComponent(request)}`;
    return this.#call(path, { method: "POST", body: answer });
  }

  /** Any request, with the protocol's own result or an error. */
  answerRequest(session: string, request: string, answer: { result: unknown } | { error: { code: number; message: string } }): Promise<void> {
    const path = `sessions/${encodeURIComponent(session)}/requests/${encodeURIComponent(request)}`;
    return this.#call(path, { method: "POST", body: answer });
  }

  /** The rights of this key. */
  about(): Promise<About> {
    return this.#call("../v1");
  }

  /** Resolves to nothing if the sign-in is complete, otherwise to the path of its terminal. */
  signIn(agent: string, methodId: string, apiKey?: string): Promise<{ url: string } | undefined> {
    const body = apiKey === undefined ? { methodId } : { methodId, apiKey };
    return this.#call(`agents/${encodeURIComponent(agent)}/auth`, { method: "POST", body });
  }

  /** The terminal of a sign-in. It uses a ticket instead of the key, because a URL must not contain the key. */
  async signInTerminal(url: string): Promise<WebSocket> {
    const root = new URL("../", BASE).pathname;
    const named = new URL(url, location.origin).pathname;
    // The path of the gateway, below which a proxy may have another one.
    const path = named.startsWith(root) ? `/${named.slice(root.length)}` : named;
    const { ticket } = await this.#call<{ ticket: string }>("tickets", { method: "POST", body: { paths: [path] } });
    const address = new URL(`.${path}`, new URL("../", BASE));
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("ticket", ticket);
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    return socket;
  }

  setMode(session: string, modeId: string): Promise<{ modes: SessionModes }> {
    return this.#call(`sessions/${encodeURIComponent(session)}/mode`, { method: "PUT", body: { modeId } });
  }

  setConfig(session: string, option: string, value: string | boolean): Promise<{ configOptions: ConfigOption[] }> {
    const path = `sessions/${encodeURIComponent(session)}/config/${encodeURIComponent(option)}`;
    return this.#call(path, { method: "PUT", body: { value } });
  }

  /** The session's log as a stream. The caller looks at the status: some of them mean "try again". */
  async events(session: string, call: StreamCall): Promise<Response> {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (call.lastEventId) headers["Last-Event-ID"] = call.lastEventId;
    const query = call.follow ? "" : "?follow=false";
    return this.#fetch(`sessions/${encodeURIComponent(session)}/events${query}`, { headers, signal: call.signal });
  }

  /** The events of several sessions as one stream, each after the event that is given with it. */
  async mergedEvents(cursors: [session: string, lastEventId: string][], call: Omit<StreamCall, "follow">): Promise<Response> {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (call.lastEventId) headers["Last-Event-ID"] = call.lastEventId;
    const query = new URLSearchParams(cursors.map(([session, after]) => ["session", `${session}@${after}`]));
    return this.#fetch(`events?${query}`, { headers, signal: call.signal });
  }

  async #call<T>(path: string, call: Call = {}): Promise<T> {
    const headers: Record<string, string> = { Accept: "application/json" };
    if (call.idempotencyKey) headers["Idempotency-Key"] = call.idempotencyKey;
    const init: RequestInit & { headers: Record<string, string> } = { method: call.method ?? "GET", headers };
    if (call.body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(call.body);
    }
    const deadline = AbortSignal.timeout(DEADLINE_MS);
    init.signal = call.signal ? AbortSignal.any([call.signal, deadline]) : deadline;
    const response = await this.#fetch(path, init);
    if (!response.ok) throw await problemOf(response);
    const text = await response.text();
    return (text ? JSON.parse(text) : undefined) as T;
  }

  async #fetch(path: string, init: RequestInit & { headers: Record<string, string> }): Promise<Response> {
    try {
      const response = await fetch(new URL(path, BASE), {
        ...init,
        headers: { ...init.headers, Authorization: `Bearer ${this.#key}` },
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
      });
      if (response.status === 401) this.#onRefused();
      return response;
    } catch (cause) {
      if (init.signal?.aborted && init.signal.reason?.name !== "TimeoutError") throw cause;
      throw new Unreachable(cause);
    }
  }
}
