// Requests to the gateway: adds the key, turns answers into values and refusals into `ApiProblem`.

import { problemOf, Unreachable } from "./problem.js";

/** The time for a whole answer. The gateway ends its own waits earlier, except those that a call asks for. */
const DEADLINE_MS = 90_000;

/** Options of each request. */
export interface CallOptions {
  /** Ends the request, which then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Options of a request that the gateway carries out once, however often it is repeated under the same key. */
export interface RepeatableCall extends CallOptions {
  /**
   * Up to 255 printable characters; the gateway keeps them for 24 hours. Repeat a failed request with the same body and the same
   * key: see `mayHaveHappened`. Without a key, a repeated request is a second one.
   */
  idempotencyKey?: string | undefined;
}

/** Options of a request that can wait for the end of a turn or of a task. */
export interface WaitingCall extends CallOptions {
  /** Seconds, at most 300. After them, the answer is the present state. */
  waitSeconds?: number | undefined;
}

/** Options of a request that changes a file or a session. */
export interface ConditionalCall extends CallOptions {
  /** The `ETag` that the object must have; else 412 `precondition_failed`. */
  ifMatch?: string | undefined;
}

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

export interface Request extends RepeatableCall, WaitingCall, ConditionalCall {
  method?: string;
  query?: Query | undefined;
  /** Becomes JSON. */
  body?: unknown;
  /** Is sent as it is. */
  content?: BodyInit;
  headers?: Record<string, string>;
}

export interface HttpOptions {
  url: string;
  key: string;
  onUnauthorized?: (() => void) | undefined;
}

export class Http {
  /** The address of `/v1/`. */
  readonly base: URL;
  readonly #key: string;
  readonly #onUnauthorized: (() => void) | undefined;
  /** Whether the gateway has answered, so it permits the origin of this page. */
  #answered = false;

  constructor({ url, key, onUnauthorized }: HttpOptions) {
    const address = new URL(url, globalThis.document?.baseURI);
    if (!address.pathname.endsWith("/")) address.pathname += "/";
    this.base = new URL("v1/", address);
    this.#key = key;
    this.#onUnauthorized = onUnauthorized;
  }

  /** The value of an answer in JSON, or undefined for an empty answer. */
  async call<T>(path: string, request: Request = {}): Promise<T> {
    const text = await this.text(path, request);
    return (text ? JSON.parse(text) : undefined) as T;
  }

  async text(path: string, request: Request = {}): Promise<string> {
    const waits = (request.waitSeconds ?? 0) * 1000;
    const deadline = AbortSignal.timeout(DEADLINE_MS + waits);
    const signal = request.signal ? AbortSignal.any([request.signal, deadline]) : deadline;
    const response = await this.checked(path, { headers: { Accept: "application/json" }, ...request, signal });
    try {
      return await response.text();
    } catch (cause) {
      throw lost(cause, signal);
    }
  }

  /** A response with a status of success. It has no deadline. */
  async checked(path: string, request: Request = {}): Promise<Response> {
    const response = await this.open(path, request);
    if (!response.ok) throw await problemOf(response);
    return response;
  }

  /** A response with any status. */
  async open(path: string, request: Request = {}): Promise<Response> {
    const { signal, content, body } = request;
    const headers: Record<string, string> = { ...request.headers, Authorization: `Bearer ${this.#key}` };
    if (request.idempotencyKey !== undefined) headers["Idempotency-Key"] = request.idempotencyKey;
    if (request.ifMatch !== undefined) headers["If-Match"] = request.ifMatch;
    if (request.waitSeconds !== undefined) headers["Prefer"] = `wait=${request.waitSeconds}`;
    const init: RequestInit = { method: request.method ?? "GET", headers, cache: "no-store", credentials: "omit", redirect: "error" };
    if (signal) init.signal = signal;
    if (content !== undefined) init.body = content;
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(body);
    }
    let response: Response;
    try {
      response = await fetch(this.address(path, request.query), init);
    } catch (cause) {
      throw lost(cause, signal, cause instanceof TypeError ? this.#otherOrigin() : undefined);
    }
    this.#answered = true;
    if (response.status === 401) this.#onUnauthorized?.();
    return response;
  }

  /** The origin of this page, if the gateway has another one and has permitted no request yet. */
  #otherOrigin(): string | undefined {
    const origin: string | undefined = globalThis.location?.origin;
    return this.#answered || origin === this.base.origin ? undefined : origin;
  }

  address(path: string, query: Query = {}): URL {
    const url = new URL(path, this.base);
    for (const [name, value] of Object.entries(query)) {
      if (value === null || value === undefined) continue;
      for (const each of Array.isArray(value) ? value : [value]) url.searchParams.append(name, String(each));
    }
    return url;
  }
}

/** An abort by the caller is passed on. A deadline and a network failure are `Unreachable`. */
function lost(cause: unknown, signal?: AbortSignal, origin?: string): unknown {
  return signal?.aborted && signal.reason?.name !== "TimeoutError" ? cause : new Unreachable(cause, origin);
}
