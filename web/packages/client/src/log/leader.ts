// The leading tab's part of the shared connection: one stream of the events of all sessions that the tabs follow.

import type { LogEvent } from "../event.js";
import { parseCursor } from "./cursor.js";
import { Follower } from "./follow.js";
import type { Cursors, Told } from "./messages.js";

/** Opens the merged stream of these sessions. */
export type OpenMerged = (cursors: Cursors, lastEventId: string | null, signal: AbortSignal) => Promise<Response>;

/** A hidden tab can be silent for a minute, because browsers run its timers once a minute. */
const TAB_SILENT_MS = 180_000;
/** Tabs that answer a new leader at the same time cause one request. */
const GATHER_MS = 30;

interface Tab {
  sessions: Set<string>;
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
  #former: Follower | null = null;
  #streams = 0;
  #gathering: ReturnType<typeof setTimeout> | undefined;

  constructor(open: OpenMerged, tell: (told: Told) => void) {
    this.#open = open;
    this.#tell = tell;
    tell({ kind: "leads" });
  }

  /** A tab follows these sessions and no others. */
  follows(tab: string, cursors: Cursors): void {
    this.#tabs.set(tab, { sessions: new Set(cursors.map(([session]) => session)), heardAt: Date.now() });
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
    this.#former?.close();
    this.#stream = this.#former = null;
  }

  #endFormer(): void {
    this.#former?.close();
    this.#former = null;
  }

  #forgetUnused(): boolean {
    const used = new Set([...this.#tabs.values()].flatMap(({ sessions }) => [...sessions]));
    const unused = [...this.#cursors.keys()].filter((session) => !used.has(session));
    for (const session of unused) this.#cursors.delete(session);
    return unused.length > 0;
  }

  #reopen(): void {
    clearTimeout(this.#gathering);
    this.#gathering = setTimeout(() => {
      if (this.#cursors.size === 0) return this.#end();
      if (this.#former) this.#stream?.close();
      else this.#former = this.#stream;
      const cursors = [...this.#cursors];
      const number = ++this.#streams;
      this.#stream = new Follower({
        open: (lastEventId, signal) => this.#open(cursors, lastEventId, signal),
        // The tabs skip the events that both streams bring.
        events: (events) => this.#distribute(events),
        connection: (connection) => {
          if (number !== this.#streams || (connection.state === "connecting" && this.#former)) return;
          this.#endFormer();
          if (connection.state !== "refused") return this.#tell({ kind: "connection", connection });
          // One of the sessions may be deleted. The request for each session shows which one.
          const deleted = connection.error.status === 404;
          this.#tell(deleted ? { kind: "again", sessions: [...this.#cursors.keys()] } : { kind: "alone" });
        },
      });
    }, GATHER_MS);
  }

  #distribute(events: readonly LogEvent[]): void {
    const parts = new Map<string, LogEvent[]>();
    for (const event of events) {
      if (event.type === "reset") {
        this.#tell({ kind: "again", sessions: event.sessionId === undefined ? [...this.#cursors.keys()] : [event.sessionId] });
      }
      const id = ownId(event);
      if (event.sessionId === undefined || id === null || !this.#cursors.has(event.sessionId)) continue;
      this.#cursors.set(event.sessionId, id);
      const part = parts.get(event.sessionId);
      if (part) part.push({ ...event, id });
      else parts.set(event.sessionId, [{ ...event, id }]);
    }
    for (const [session, part] of parts) this.#tell({ kind: "events", session, events: part });
  }
}

/** The id of an event in the log of its session. In the merged stream, its id is `<epoch>-g<position>`. */
function ownId(event: LogEvent): string | null {
  const epoch = event.id?.split("-")[0];
  return epoch === undefined || event.seq === undefined ? null : `${epoch}-${event.seq}`;
}

/** Whether a tab needs events that were sent already. Events of another epoch are other ones. */
function isBefore(after: string, sent: string): boolean {
  const [wanted, last] = [parseCursor(after), parseCursor(sent)];
  return wanted === null || last === null || wanted.epoch !== last.epoch || wanted.seq < last.seq;
}
