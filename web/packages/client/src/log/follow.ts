// Follows a session's log: connects, delivers events, and reconnects after a lost connection. It knows only the
// frames that control the connection.

import { backoff } from "./backoff.js";
import { SseParser } from "./sse.js";
import { ApiProblem, problemOf, Unreachable } from "../problem.js";
import { type LogEvent, parseEvent } from "../event.js";
import { known } from "../open.js";
import type { Problem } from "../types.js";

export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "lost"; retryAt: number; reason: string }
  | { state: "ended"; why: "finished" | "deleted" }
  | { state: "refused"; error: ApiProblem };

export interface FollowOptions {
  open(lastEventId: string | null, signal: AbortSignal): Promise<Response>;
  events(events: LogEvent[]): void;
  connection(connection: Connection): void;
  now?(): number;
}

/** The gateway sends a comment every 15 s: three of them missing means that the connection is dead without knowing it. */
const SILENCE_MS = 45_000;
/** Statuses that will not change by asking again. */
const FINAL = new Set([400, 401, 403, 404, 405, 406, 421, 422]);

type Outcome = { kind: "again"; reason: string; afterMs?: number } | { kind: "end"; connection: Connection };

export class Follower {
  readonly #options: FollowOptions;
  readonly #stop = new AbortController();
  #lastEventId: string | null = null;
  #attempt = 0;
  #retryMs = 1000;
  #wake: (() => void) | null = null;
  #batch: LogEvent[] = [];

  constructor(options: FollowOptions) {
    this.#options = options;
    void this.#run();
  }

  /** Ends the wait before the next try. */
  retryNow(): void {
    this.#wake?.();
  }

  close(): void {
    this.#stop.abort();
    this.#wake?.();
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      this.#options.connection({ state: "connecting" });
      const outcome = await this.#connect();
      if (this.#stop.signal.aborted) return;
      if (outcome.kind === "end") return this.#options.connection(outcome.connection);
      const wait = outcome.afterMs ?? backoff(this.#attempt, this.#retryMs);
      this.#attempt += 1;
      const now = this.#options.now?.() ?? Date.now();
      this.#options.connection({ state: "lost", retryAt: now + wait, reason: outcome.reason });
      await this.#pause(wait);
    }
  }

  async #connect(): Promise<Outcome> {
    const attempt = new AbortController();
    const signal = AbortSignal.any([this.#stop.signal, attempt.signal]);
    const unanswered = setTimeout(() => attempt.abort(), SILENCE_MS);
    try {
      const response = await this.#options.open(this.#lastEventId, signal);
      clearTimeout(unanswered);
      if (response.status === 204) return { kind: "end", connection: { state: "ended", why: "finished" } };
      if (response.status !== 200 || !response.body) return await refusal(response);
      return await this.#read(response.body);
    } catch (error) {
      return { kind: "again", reason: error instanceof ApiProblem || error instanceof Unreachable ? error.message : "The gateway cannot be reached." };
    } finally {
      clearTimeout(unanswered);
      attempt.abort();
    }
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<Outcome> {
    let outcome: Outcome | null = null;
    const parser = new SseParser({
      retry: (milliseconds) => (this.#retryMs = Math.min(Math.max(milliseconds, 100), 60_000)),
      frame: (frame) => {
        const event = parseEvent(frame.data);
        if (!event) return;
        if (frame.id) this.#lastEventId = frame.id;
        // A position is nothing but its id.
        if (event.type === "position") return;
        this.#batch.push(event);
        outcome = this.#steer(event) ?? outcome;
      },
    });
    const decoder = new TextDecoder();
    const reader = body.getReader();
    let silence: ReturnType<typeof setTimeout> | undefined;
    try {
      for (;;) {
        clearTimeout(silence);
        silence = setTimeout(() => void reader.cancel().catch(() => undefined), SILENCE_MS);
        const { done, value } = await reader.read();
        if (done) break;
        parser.push(decoder.decode(value, { stream: true }));
        this.#handOver();
        if (outcome && (outcome as Outcome).kind === "end") break;
      }
    } catch {
      // The connection broke. All events before it are kept, and `#lastEventId` is the position to resume from.
    } finally {
      clearTimeout(silence);
    }
    return outcome ?? { kind: "again", reason: "The connection to the gateway was lost." };
  }

  /** Events go out in the pieces that the network brought, and always before the news that they led to. */
  #handOver(): void {
    if (this.#batch.length > 0) this.#options.events(this.#batch);
    this.#batch = [];
  }

  #steer(event: LogEvent): Outcome | null {
    if (event.type === "ready") {
      this.#attempt = 0;
      this.#handOver();
      this.#options.connection({ state: "live" });
    } else if (event.type === "end") {
      // A body that ends without this was cut, and is asked for again from the last id.
      const why = event["reason"] === "session_deleted" ? "deleted" : "finished";
      return { kind: "end", connection: { state: "ended", why } };
    } else if (event.type === "shutdown") {
      const afterMs = typeof event["retryMs"] === "number" ? event["retryMs"] : this.#retryMs;
      return { kind: "again", reason: "The gateway is restarting.", afterMs };
    } else if (event.type === "problem") {
      const problem = event["problem"] as Problem;
      // The session was deleted, or the access of the user was taken back.
      if (known(problem.code) === "not_found") return { kind: "end", connection: { state: "refused", error: new ApiProblem(404, problem) } };
      const words = problem.detail ?? problem.title ?? problem.code;
      const seconds = problem.retryAfterSeconds;
      return { kind: "again", reason: words, ...(seconds ? { afterMs: seconds * 1000 } : {}) };
    }
    return null;
  }

  #pause(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
      if (this.#stop.signal.aborted) this.#wake();
    });
  }
}

async function refusal(response: Response): Promise<Outcome> {
  const error = await problemOf(response);
  if (FINAL.has(response.status)) return { kind: "end", connection: { state: "refused", error } };
  const seconds = error.problem.retryAfterSeconds;
  return { kind: "again", reason: error.message, ...(seconds ? { afterMs: seconds * 1000 } : {}) };
}
