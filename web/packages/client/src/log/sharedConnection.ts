// The connection that all tabs of a browser share. Over HTTP/1.1 a browser opens six connections to one host, and a stream
// uses one of them all the time.
//
// The tabs elect a leader with a lock of the browser. Only the leader has a stream. It sends the events to the other tabs over a
// BroadcastChannel. When the leader is closed or frozen, the lock passes to another tab. Both names contain a digest of the
// key, so that tabs with other keys share nothing. Without a secure context, and in a page whose storage the browser blocks, there
// are no locks: each tab has its own stream.

import type { LogEvent } from "../event.js";
import type { ListChange } from "../list.js";
import type { Connection } from "./follow.js";
import { Leader, type OpenMerged } from "./leader.js";
import type { Asked, Told } from "./messages.js";

export interface Listener {
  readonly session: string;
  /** The id of the last event that the listener has. */
  cursor(): string;
  events(events: LogEvent[]): void;
  connection(connection: Connection): void;
  /** The session has to be read again. The listener is removed. */
  again(): void;
  /** The listener needs a stream of its own. It is removed. */
  alone(): void;
}

/** Shows the list of sessions. */
export interface ListListener {
  /** The list has to be read once. Changes after that arrive. */
  read(): void;
  changes(changes: ListChange[]): void;
  /** The listener gets no changes. It is removed. */
  alone(): void;
}

/** Tabs with another version of these messages share nothing. */
const VERSION = 2;
const BEAT_MS = 20_000;
/** A leader that is silent for this time has lost its lock. Browsers run the timers of a hidden tab once a minute. */
const SILENT_MS = 150_000;

export class SharedConnection {
  readonly #open: OpenMerged;
  readonly #tab = crypto.randomUUID();
  readonly #listeners = new Set<Listener>();
  readonly #lists = new Set<ListListener>();
  readonly #stop = new AbortController();
  #name = "";
  #channel: BroadcastChannel | null = null;
  #leader: Leader | null = null;
  /** Its end returns the lock, or ends the wait for it. */
  #candidacy: AbortController | null = null;
  #heardAt = Date.now();
  /** The browser refuses locks to this page, for example in a frame of another site. */
  #refused = false;

  /** Null if the browser cannot share a connection here. */
  static of(key: string, scope: string, open: OpenMerged): SharedConnection | null {
    return "locks" in navigator && "BroadcastChannel" in globalThis ? new SharedConnection(key, scope, open) : null;
  }

  private constructor(key: string, scope: string, open: OpenMerged) {
    this.#open = open;
    const { signal } = this.#stop;
    void digest(`${scope} ${key}`).then((name) => {
      if (signal.aborted) return;
      this.#name = `acp-gateway ${VERSION} ${name}`;
      this.#begin();
    });
    addEventListener("pagehide", () => this.#end(), { signal });
    addEventListener("pageshow", (event) => event.persisted && this.#begin(), { signal });
    document.addEventListener("freeze", () => this.#end(), { signal });
    document.addEventListener("resume", () => this.#begin(), { signal });
    const timer = setInterval(() => this.#beat(), BEAT_MS);
    signal.addEventListener("abort", () => clearInterval(timer));
  }

  /** Follows a session until the returned function is called. */
  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    if (this.#refused) queueMicrotask(() => this.#leaveAlone());
    else this.#follow();
    return () => {
      if (this.#listeners.delete(listener)) this.#follow();
    };
  }

  /** Follows the list of sessions until the returned function is called. */
  listenToList(listener: ListListener): () => void {
    this.#lists.add(listener);
    if (this.#refused) queueMicrotask(() => this.#leaveAlone());
    else this.#follow();
    return () => {
      if (this.#lists.delete(listener)) this.#follow();
    };
  }

  retryNow(): void {
    this.#ask({ kind: "retry" });
  }

  close(): void {
    this.#end();
    this.#stop.abort();
  }

  #begin(): void {
    if (this.#channel || this.#name === "" || this.#refused) return;
    try {
      this.#channel = new BroadcastChannel(this.#name);
    } catch {
      return this.#refuse();
    }
    this.#channel.onmessage = ({ data }: MessageEvent<Told | Asked>) => this.#received(data);
    this.#heardAt = Date.now();
    this.#compete(false);
    this.#follow();
  }

  #end(): void {
    this.#ask({ kind: "gone", tab: this.#tab });
    this.#channel?.close();
    this.#channel = null;
    this.#candidacy?.abort();
    this.#stopLeading();
  }

  /** Leads as long as this tab has the lock. */
  #compete(steal: boolean): void {
    const candidacy = new AbortController();
    const { signal } = candidacy;
    this.#candidacy = candidacy;
    const lead = () =>
      new Promise<void>((release) => {
        if (signal.aborted) return release();
        signal.addEventListener("abort", () => release());
        this.#leader = new Leader(this.#open, (told) => this.#tell(told));
      });
    const held = navigator.locks.request(this.#name, steal ? { steal } : { signal }, lead);
    const again = () => {
      // Another tab has taken the lock. After an abort, a later candidacy may already lead.
      if (signal.aborted) return;
      this.#stopLeading();
      this.#compete(false);
    };
    void held.then(again, (error: unknown) => {
      if (error instanceof DOMException && error.name === "AbortError") again();
      else this.#refuse();
    });
  }

  #refuse(): void {
    this.#refused = true;
    this.#channel?.close();
    this.#channel = null;
    this.#stopLeading();
    this.#leaveAlone();
  }

  #leaveAlone(): void {
    this.#each((listener) => this.#listeners.delete(listener) && listener.alone());
    for (const list of [...this.#lists]) if (this.#lists.delete(list)) list.alone();
  }

  #stopLeading(): void {
    this.#leader?.close();
    this.#leader = null;
  }

  #beat(): void {
    if (this.#leader) {
      // The leader also counts its own tab, which sends no message to itself.
      this.#leader.here(this.#tab);
      this.#leader.expire();
      return this.#tell({ kind: "beat" });
    }
    this.#ask({ kind: "here", tab: this.#tab });
    if (!this.#channel || Date.now() - this.#heardAt < SILENT_MS) return;
    this.#heardAt = Date.now();
    this.#candidacy?.abort();
    this.#compete(true);
  }

  #follow(): void {
    const cursors = [...this.#listeners].map((listener): [string, string] => [listener.session, listener.cursor()]);
    this.#ask({ kind: "follows", tab: this.#tab, cursors, list: this.#lists.size > 0 });
  }

  #ask(asked: Asked): void {
    if (this.#leader) this.#asked(asked);
    else this.#channel?.postMessage(asked);
  }

  #tell(told: Told): void {
    this.#channel?.postMessage(told);
    this.#told(told);
  }

  #received(message: Told | Asked): void {
    switch (message.kind) {
      case "follows":
      case "here":
      case "gone":
      case "retry":
        if (this.#leader) this.#asked(message);
        return;
      default:
        this.#heardAt = Date.now();
        this.#told(message);
    }
  }

  #asked(asked: Asked): void {
    switch (asked.kind) {
      case "follows":
        return this.#leader?.follows(asked.tab, asked.cursors, asked.list);
      case "here":
        return this.#leader?.here(asked.tab);
      case "gone":
        return this.#leader?.gone(asked.tab);
      case "retry":
        return this.#leader?.retryNow();
    }
  }

  #told(told: Told): void {
    switch (told.kind) {
      case "leads":
        // The leader itself is made in this call, and has to exist first.
        return queueMicrotask(() => this.#follow());
      case "beat":
        return;
      case "events":
        return this.#each((listener) => listener.session === told.session && listener.events(told.events));
      case "connection":
        return this.#each((listener) => listener.connection(told.connection));
      case "list":
        return this.#lists.forEach((list) => list.changes(told.changes));
      case "readList":
        if (told.tab === null || told.tab === this.#tab) this.#lists.forEach((list) => list.read());
        return;
      case "again":
        return this.#each((listener) => told.sessions.includes(listener.session) && this.#listeners.delete(listener) && listener.again());
      case "alone":
        return this.#leaveAlone();
    }
  }

  /** A listener can remove itself during the call. */
  #each(act: (listener: Listener) => void): void {
    for (const listener of [...this.#listeners]) act(listener);
  }
}

async function digest(text: string): Promise<string> {
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return [...bytes.slice(0, 16)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
