// One session as the page follows it: events are folded when they arrive, in the pieces of the network, and shown once per
// frame, so that a flood of small chunks costs one redraw and not a thousand.

import type { GatewayClient } from "./client.js";
import type { Connection } from "./log/follow.js";
import type { SharedConnection } from "./log/sharedConnection.js";
import { SharedFollower } from "./log/shared.js";
import { foldAll } from "./state/fold.js";
import { EMPTY, type SessionLog } from "./state/state.js";

export interface FeedState {
  log: SessionLog;
  connection: Connection;
  /** The first replay has ended: later changes are live. */
  caughtUp: boolean;
}

/** A hidden tab gets no frames, and its title still has to follow. */
const HIDDEN_MS = 250;
/** Renders a long history in a few large steps. Rendering every frame of the replay would be slower. */
const REPLAY_MS = 500;

/**
 * Follows a session through reconnects and restarts of the gateway: each event is folded once and in order. `hub` is the connection of
 * `sharedConnection`, or null for a stream of its own. Close a feed that is not used any more.
 */
export class SessionFeed {
  readonly sessionId: string;
  #state: FeedState = { log: EMPTY, connection: { state: "connecting" }, caughtUp: false };
  /** The log with the events that the page does not show yet. */
  #log: SessionLog = EMPTY;
  #connection: Connection | null = null;
  #scheduled: (() => void) | null = null;
  readonly #listeners = new Set<() => void>();
  readonly #follower: SharedFollower;

  constructor(client: GatewayClient, hub: SharedConnection | null, sessionId: string) {
    this.sessionId = sessionId;
    this.#follower = new SharedFollower({
      hub,
      session: sessionId,
      open: (lastEventId, follow, signal) => client.events(sessionId, { lastEventId, follow, signal }),
      events: (events) => {
        this.#log = foldAll(this.#log, events);
        this.#schedule();
      },
      connection: (connection) => {
        this.#connection = connection;
        if (connection.state === "live" && !this.#state.caughtUp) this.#flush();
        else this.#schedule();
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

  close(): void {
    this.#follower.close();
    this.#scheduled?.();
    this.#listeners.clear();
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

  #flush(): void {
    this.#scheduled?.();
    this.#scheduled = null;
    const connection = this.#connection ?? this.#state.connection;
    this.#state = { log: this.#log, connection, caughtUp: this.#state.caughtUp || connection.state === "live" };
    for (const listener of this.#listeners) listener();
  }
}
