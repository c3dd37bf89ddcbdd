// The leading tab's part of the shared connection: one stream of the events of all sessions that the tabs follow, and of the
// changes of the list of sessions.

import type { LogEvent } from "../event.js";
import type { ListChange } from "../list.js";
import type { SessionSummary } from "../types.js";
import { parseCursor } from "./cursor.js";
import { Follower } from "./follow.js";
import type { Cursors, Told } from "./messages.js";

export interface MergedCall {
  lastEventId: string | null;
  signal: AbortSignal;
  /** Whether the stream has the changes of the list of sessions. */
  summaries?: boolean;
}

/** Opens the merged stream of these sessions. */
export type OpenMerged = (cursors: Cursors, call: MergedCall) => Promise<Response>;

/** A hidden tab can be silent for a minute, because browsers run its timers once a minute. */
const TAB_SILENT_MS = 180_000;
/** Tabs that answer a new leader at the same time cause one request. */
const GATHER_MS = 30;
/** Longer than the gateway holds back a change of the list. */
const LINGER_MS = 1000;

interface Tab {
  sessions: Set<string>;
  list: boolean;
  heardAt: number;
}

export class Leader {
  readonly #open: OpenMerged;
  readonly #tell: (told: Told) => void;
  readonly #tabs = new Map<string, Tab>();
  /** The sessions of the stream, each with the last event that was sent to the tabs. */
  readonly #cursors = new Map<string, string>();
  #stream: Follower | null = null;
  /** The stream before, until the present one is live: an agent may ask a question only while somebody follows its session. */
  #previous: Follower | null = null;
  /** Previous streams that still bring the changes of the list from before the present stream. */
  readonly #lingering = new Set<Follower>();
  #streams = 0;
  /** Whether a tab shows the list of sessions. */
  #list = false;
  /** Whether the tabs get each change of the list, from the present stream or the one before. */
  #listIsLive = false;
  #gathering: ReturnType<typeof setTimeout> | undefined;

  constructor(open: OpenMerged, tell: (told: Told) => void) {
    this.#open = open;
    this.#tell = tell;
    tell({ kind: "leads" });
  }

  /** A tab follows these sessions and no others. */
  follows(tab: string, cursors: Cursors, list: boolean): void {
    const listed = this.#tabs.get(tab)?.list ?? false;
    this.#tabs.set(tab, { sessions: new Set(cursors.map(([session]) => session)), list, heardAt: Date.now() });
    // The changes so far went to the other tabs only.
    if (list && !listed && this.#listIsLive) this.#tell({ kind: "readList", tab });
    let changed = false;
    for (const [session, after] of cursors) {
      const sent = this.#cursors.get(session);
      if (sent !== undefined && !isBefore(after, sent)) continue;
      this.#cursors.set(session, after);
      changed = true;
    }
    if (this.#forgetUnused() || changed) this.#reopen();
  }

  here(tab: string): void {
    const known = this.#tabs.get(tab);
    if (known) known.heardAt = Date.now();
    // A tab that slept was forgotten. It repeats what it follows.
    else this.#tell({ kind: "leads" });
  }

  gone(tab: string): void {
    if (this.#tabs.delete(tab) && this.#forgetUnused()) this.#reopen();
  }

  /** Forgets tabs that ended without a word. */
  expire(): void {
    const limit = Date.now() - TAB_SILENT_MS;
    for (const [tab, { heardAt }] of this.#tabs) if (heardAt < limit) this.gone(tab);
  }

  retryNow(): void {
    this.#stream?.retryNow();
  }

  close(): void {
    clearTimeout(this.#gathering);
    this.#end();
  }

  #end(): void {
    this.#stream?.close();
    for (const previous of [this.#previous, ...this.#lingering]) previous?.close();
    this.#lingering.clear();
    this.#stream = this.#previous = null;
    this.#listIsLive = false;
  }

  #endPrevious(lingers: boolean): void {
    const previous = this.#previous;
    this.#previous = null;
    if (!previous || !lingers) return previous?.close();
    this.#lingering.add(previous);
    setTimeout(() => {
      previous.close();
      this.#lingering.delete(previous);
    }, LINGER_MS);
  }

  /** Whether the stream has to be another one. */
  #forgetUnused(): boolean {
    const list = [...this.#tabs.values()].some((tab) => tab.list);
    const changed = list !== this.#list;
    this.#list = list;
    const used = new Set([...this.#tabs.values()].flatMap(({ sessions }) => [...sessions]));
    const unused = [...this.#cursors.keys()].filter((session) => !used.has(session));
    for (const session of unused) this.#cursors.delete(session);
    return changed || unused.length > 0;
  }

  #reopen(): void {
    clearTimeout(this.#gathering);
    this.#gathering = setTimeout(() => {
      if (this.#cursors.size === 0 && !this.#list) return this.#end();
      if (this.#previous) this.#stream?.close();
      else this.#previous = this.#stream;
      const cursors = [...this.#cursors];
      const [number, summaries] = [++this.#streams, this.#list];
      this.#stream = new Follower({
        open: (lastEventId, signal) => this.#open(cursors, { lastEventId, signal, summaries }),
        // The tabs skip the events that both streams bring.
        events: (events) => this.#distribute(events),
        connection: (connection) => {
          const live = connection.state === "live";
          if (number !== this.#streams) {
            // The previous stream may have missed a change.
            if (this.#previous && !live) this.#listIsLive = false;
            return;
          }
          if (connection.state === "connecting" && this.#previous) return;
          const lingers = live && summaries && this.#listIsLive;
          this.#endPrevious(lingers);
          this.#listIsLive = live && summaries;
          if (this.#listIsLive && !lingers) this.#tell({ kind: "readList", tab: null });
          if (connection.state !== "refused") return this.#tell({ kind: "connection", connection });
          if (connection.error.status === 404) this.#startAgain();
          else this.#tell({ kind: "alone" });
        },
      });
    }, GATHER_MS);
  }

  /** One of the sessions may be deleted. The request for each session shows which one. */
  #startAgain(): void {
    const sessions = [...this.#cursors.keys()];
    this.#cursors.clear();
    this.#tell({ kind: "again", sessions });
    this.#reopen();
  }

  #distribute(events: readonly LogEvent[]): void {
    const parts = new Map<string, LogEvent[]>();
    const changes: ListChange[] = [];
    for (const event of events) {
      if (event.type === "summaries.reset") this.#tell({ kind: "readList", tab: null });
      if (event.type === "session.summary") {
        if (event.sessionId !== undefined) changes.push({ session: event.sessionId, summary: (event["session"] ?? null) as SessionSummary | null });
        continue;
      }
      if (event.type === "reset") {
        this.#tell({ kind: "again", sessions: event.sessionId === undefined ? [...this.#cursors.keys()] : [event.sessionId] });
      }
      if (event.sessionId === undefined || event.id === undefined || event.seq === undefined || !this.#cursors.has(event.sessionId)) continue;
      this.#cursors.set(event.sessionId, event.id);
      const part = parts.get(event.sessionId);
      if (part) part.push(event);
      else parts.set(event.sessionId, [event]);
    }
    if (changes.length > 0) this.#tell({ kind: "list", changes });
    for (const [session, part] of parts) this.#tell({ kind: "events", session, events: part });
  }
}

/** Whether a tab needs events that were sent already. Events of another epoch are other ones. */
function isBefore(after: string, sent: string): boolean {
  const [wanted, last] = [parseCursor(after), parseCursor(sent)];
  return wanted === null || last === null || wanted.epoch !== last.epoch || wanted.seq < last.seq;
}
