// Follows a session over the connection that all tabs share. It first reads the log to its end with a request of its own,
// because the other tabs do not need these events, then follows the shared stream from there.

import type { LogEvent } from "../event.js";
import { parseCursor } from "./cursor.js";
import { Follower, type Connection } from "./follow.js";
import type { SharedConnection } from "./sharedConnection.js";

export interface SharedOptions {
  /** Null without a shared connection. */
  hub: SharedConnection | null;
  session: string;
  /** Opens the session's own stream. `follow`: it does not end at the tail. */
  open(lastEventId: string | null, follow: boolean, signal: AbortSignal): Promise<Response>;
  events(events: LogEvent[]): void;
  connection(connection: Connection): void;
}

export class SharedFollower {
  readonly #options: SharedOptions;
  #own: Follower | null = null;
  #leave: (() => void) | null = null;
  #cursor: string | null = null;

  constructor(options: SharedOptions) {
    this.#options = options;
    this.#read(options.hub === null);
  }

  retryNow(): void {
    this.#own?.retryNow();
    if (this.#leave) this.#options.hub?.retryNow();
  }

  close(): void {
    this.#own?.close();
    this.#leave?.();
  }

  /** Reads from the cursor, and with `follow` stays on this stream. */
  #read(follow: boolean): void {
    this.#own = new Follower({
      open: (lastEventId, signal) => this.#options.open(lastEventId ?? this.#cursor, follow, signal),
      events: (events) => this.#take(events),
      connection: (connection) => {
        const caughtUp = !follow && connection.state === "ended" && connection.why === "finished";
        if (caughtUp) this.#share();
        else this.#options.connection(connection);
      },
    });
  }

  #share(): void {
    this.#own = null;
    const { hub, session } = this.#options;
    // A session has at least the event of its creation.
    if (!hub || this.#cursor === null) return this.#read(true);
    const leaveFor = (next: () => void) => () => {
      this.#leave = null;
      next();
    };
    this.#options.connection({ state: "live" });
    this.#leave = hub.listen({
      session,
      cursor: () => this.#cursor ?? "",
      events: (events) => this.#shared(events),
      connection: (connection) => this.#options.connection(connection),
      again: leaveFor(() => this.#read(false)),
      alone: leaveFor(() => this.#read(true)),
    });
  }

  /** Events that another tab needed are skipped. After a missing event, the log is read again from the cursor. */
  #shared(events: LogEvent[]): void {
    const last = parseCursor(this.#cursor);
    const isNew = (event: LogEvent) => {
      const at = parseCursor(event.id);
      return at !== null && (at.epoch !== last?.epoch || at.seq > last.seq);
    };
    const fresh = events.filter(isNew);
    const first = fresh.length > 0 ? parseCursor(fresh[0]!.id) : null;
    if (first === null) return;
    if (first.epoch !== last?.epoch || first.seq !== last.seq + 1) {
      this.#leave?.();
      this.#leave = null;
      return this.#read(false);
    }
    this.#take(fresh);
    if (fresh.some((event) => event.type === "session.deleted")) {
      this.#leave?.();
      this.#leave = null;
      this.#options.connection({ state: "ended", why: "deleted" });
    }
  }

  #take(events: LogEvent[]): void {
    this.#cursor = events.findLast((event) => parseCursor(event.id) !== null)?.id ?? this.#cursor;
    this.#options.events(events);
  }
}
