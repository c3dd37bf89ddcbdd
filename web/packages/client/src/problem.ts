// The errors of requests.

import { known } from "./open.js";
import type { Problem } from "./types.js";

/** The gateway answered with a problem. */
export class ApiProblem extends Error {
  readonly status: number;
  readonly problem: Problem;

  constructor(status: number, problem: Problem) {
    super(problem.detail ?? problem.title ?? problem.code);
    this.name = "ApiProblem";
    this.status = status;
    this.problem = problem;
  }
}

/** No response: the gateway or the network is down, or the gateway rejects the origin of the page, which a browser does not tell apart. */
export class Unreachable extends Error {
  /** `origin` is that of the page if the gateway may reject it. */
  constructor(cause: unknown, origin?: string) {
    const advice = ` If it runs, it may reject pages of ${origin}: add this origin to \`auth.allowed_origins\` in its configuration.`;
    super(`The gateway cannot be reached.${origin === undefined ? "" : advice}`, { cause });
    this.name = "Unreachable";
  }
}

/** Reads an error response. A proxy may answer in its own format, so the function checks every member. */
export async function problemOf(response: Response): Promise<ApiProblem> {
  let problem: Problem = { code: `http_${response.status}`, title: `The server answered with ${response.status}.` };
  try {
    const body: unknown = await response.json();
    if (typeof body === "object" && body !== null && typeof (body as Problem).code === "string") problem = body as Problem;
  } catch {
    // Not JSON: the text for the status is used.
  }
  const wait = Number(response.headers.get("Retry-After"));
  if (problem.retryAfterSeconds == null && Number.isFinite(wait) && wait > 0) problem.retryAfterSeconds = wait;
  return new ApiProblem(response.status, problem);
}

/** Whether the request may have been carried out although it failed here: it must be repeated under the same key or not at all. */
export function mayHaveHappened(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof ApiProblem && known(error.problem.code) === "idempotency_in_flight");
}
