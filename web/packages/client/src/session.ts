// One session as the page follows it: events are folded when they arrive, in the pieces of the network, and shown once per
// frame, so that a flood of small chunks costs one redraw and not a thousand.

import type { GatewayClient } from "./client.js";
import type { LogEvent } from "./event.js";
import { type Connection, Follower, type FollowOptions } from "./log/follow.js";
import type { SharedConnection } from "./log/sharedConnection.js";
import { SharedFollower } from "./log/shared.js";
import { foldAll } from "./state/fold.js";
import { EMPTY, type SessionLog } from "./state/state.js";
import { beforeTail } from "./tail.js";

export interface FeedState {
  /** A long log has its last events only (`log.start`). */
  log: SessionLog;
  connection: Connection;
  /** The first replay has ended: later changes are live. */
  caughtUp: boolean;
  earlier: "idle" | "loading" | "failed";
}

/** A hidden tab gets no frames, and its title still has to follow. */
const HIDDEN_MS = 250;
/** Renders a long history in a few large steps. Rendering every frame of the replay would be slower. */
const REPLAY_MS = 500;
/** A longer log begins with its last events. */
const TAIL_EVENTS = 2000;

/**
 * Follows a session through reconnects and restarts of the gateway: each event is folded once and in order. `hub` is the connection of
 * `sharedConnection`, or null for a stream of its own. A log of more than 2,000 events begins with the last 2,000; `loadEarlier` reads
 * the others. Close a feed that is not used any more.
 */
export class SessionFeed {
  readonly sessionId: string;
  #state: FeedState = { log: EMPTY, connection: { state: "connecting" }, caughtUp: false, earlier: "idle" };
  /** The log with the events that the page does not show yet. */
  #log: SessionLog = EMPTY;
  #connection: Connection | null = null;
  #scheduled: (() => void) | null = null;
  readonly #listeners = new Set<() => void>();
  readonly #client: GatewayClient;
  readonly #follower: SharedFollower;
  readonly #stop = new AbortController();
  #earlier: Promise<void> | null = null;
  /** The events that arrive while earlier ones are read. */
  #meanwhile: LogEvent[] | null = null;

  constructor(client: GatewayClient, hub: SharedConnection | null, sessionId: string) {
    this.sessionId = sessionId;
    this.#client = client;
    this.#follower = new SharedFollower({
      hub,
      session: sessionId,
      open: async (lastEventId, follow, signal) => client.events(sessionId, { lastEventId: lastEventId ?? (await this.#begin(signal)), follow, signal }),
      events: (events) => {
        this.#log = foldAll(this.#log, events);
        this.#meanwhile?.push(...events);
        if (this.#state.caughtUp) void this.#complete();
        this.#schedule();
      },
      connection: (connection) => {
        this.#connection = connection;
        if (connection.state !== "live" || this.#state.caughtUp) return this.#schedule();
        this.#flush();
        void this.#complete();
      },
    });
  }

  /** Calls the listener after each change of the state, at most once a frame. Returns the function that ends it. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** The present state: the same object until the next change. */
  readonly state = (): FeedState => this.#state;

  /** Connects now instead of at `retryAt`. */
  retryNow(): void {
    this.#follower.retryNow();
  }

  /**
   * Reads earlier events: as many as the log has, or all. Resolves when the state has them; at once, if the log has all events.
   * Rejects if the gateway refuses them.
   */
  async loadEarlier(all = false): Promise<void> {
    while (this.#log.start > 0) {
      this.#earlier ??= this.#readEarlier(all).finally(() => (this.#earlier = null));
      await this.#earlier;
      if (!all) return;
    }
  }

  close(): void {
    this.#stop.abort();
    this.#follower.close();
    this.#scheduled?.();
    this.#listeners.clear();
  }

  /** The id after which the stream begins. Null: at the beginning of the session. */
  async #begin(signal: AbortSignal): Promise<string | null> {
    this.#log = (await beforeTail(this.#client, this.sessionId, TAIL_EVENTS, signal)) ?? EMPTY;
    return cursorOf(this.#log);
  }

  /** Reads earlier events if the log has events of turns whose beginning it does not have. */
  async #complete(): Promise<void> {
    // The state says that it failed.
    while (this.#log.incomplete && this.#state.earlier === "idle") await this.loadEarlier().catch(() => undefined);
  }

  /** Replaces the log by one with an earlier beginning. */
  async #readEarlier(all: boolean): Promise<void> {
    const previous = this.#log;
    const meanwhile: LogEvent[] = [];
    this.#meanwhile = meanwhile;
    this.#show({ earlier: "loading" });
    try {
      const { signal } = this.#stop;
      const before = all ? null : await beforeTail(this.#client, this.sessionId, 2 * Math.max(previous.seq - previous.start, TAIL_EVENTS), signal);
      signal.throwIfAborted();
      const open = (lastEventId: string | null, signal: AbortSignal) => this.#client.events(this.sessionId, { lastEventId, follow: false, signal });
      const log = foldAll(await readToEnd(open, before ?? EMPTY, signal), meanwhile);
      // After a reset, the log is another one.
      if (this.#log.start === previous.start && this.#log.epoch === log.epoch) this.#log = log;
      this.#flush({ earlier: "idle" });
    } catch (error) {
      this.#show({ earlier: "failed" });
      throw error;
    } finally {
      this.#meanwhile = null;
    }
  }

  #schedule(): void {
    if (this.#scheduled) return;
    const replaying = !this.#state.caughtUp && this.#state.log.seq > 0;
    if (replaying || document.hidden) {
      const timer = setTimeout(() => this.#flush(), replaying ? REPLAY_MS : HIDDEN_MS);
      this.#scheduled = () => clearTimeout(timer);
    } else {
      const frame = requestAnimationFrame(() => this.#flush());
      // A tab that is hidden between the request and the frame would wait until it is shown again.
      const timer = setTimeout(() => this.#flush(), HIDDEN_MS);
      this.#scheduled = () => {
        cancelAnimationFrame(frame);
        clearTimeout(timer);
      };
    }
  }

  #flush(change: Partial<FeedState> = {}): void {
    this.#scheduled?.();
    this.#scheduled = null;
    const connection = this.#connection ?? this.#state.connection;
    this.#show({ log: this.#log, connection, caughtUp: this.#state.caughtUp || connection.state === "live", ...change });
  }

  #show(change: Partial<FeedState>): void {
    this.#state = { ...this.#state, ...change };
    for (const listener of this.#listeners) listener();
  }
}

function cursorOf({ epoch, seq }: SessionLog): string | null {
  return epoch === null ? null : `${epoch}-${seq}`;
}

/** The log with all events up to now. */
function readToEnd(open: FollowOptions["open"], from: SessionLog, stop: AbortSignal): Promise<SessionLog> {
  return new Promise((resolve, reject) => {
    let log = from;
    const follower = new Follower({
      open: (lastEventId, signal) => open(lastEventId ?? cursorOf(from), signal),
      events: (events) => (log = foldAll(log, events)),
      connection: (connection) => {
        if (connection.state === "ended") resolve(log);
        if (connection.state === "refused") reject(connection.error);
      },
    });
    stop.addEventListener("abort", () => {
      follower.close();
      reject(stop.reason as Error);
    });
  });
}
