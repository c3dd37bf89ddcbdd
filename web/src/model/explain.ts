// Converts errors to text for people, with the next step.

import { ApiProblem, Unreachable, type Problem } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";

export interface Explanation {
  title: string;
  detail?: string;
  hint?: string;
}

const HINTS: Record<string, string> = {
  unauthorized: "Open the link that the gateway printed when it started, or paste its key.",
  forbidden: "This key, or the configuration of the gateway, does not allow that.",
  not_found: "It may have been deleted in another window.",
  misdirected_request: "Open the page by the address that the gateway printed, or add this host name to its configuration.",
  too_large: "Make the message shorter.",
  prompt_not_queued: "It is no longer in the queue, because it has started or was removed.",
  turn_running: "Wait for the agent to finish, or stop it first.",
  session_closed: "Open the session again to go on.",
  request_resolved: "Somebody else has answered it already.",
  agent_auth_required: "Sign in with an admin key here, or with the agent's own command where the gateway runs. Then try again.",
  agent_start_failed: "Check that the agent's command is installed where the gateway runs. Its log says more.",
  agent_exited: "Send the message again: the gateway starts the agent anew.",
  agent_disconnected: "Check that the agent's host is running and can be reached. Then send the message again: the gateway connects anew.",
  member_unavailable: "Start acp-gateway connect on the agent's machine, or wait until it is back. Then send the message again.",
  agent_timeout: "The agent did not answer in time. Try again in a moment.",
  agent_unsupported: "This agent cannot do that.",
  rate_limited: "Wait a moment, then try again.",
  queue_full: "Too much is waiting already. Try again when something has finished.",
  pool_full: "All agent processes are busy. Try again in a moment.",
  crash_loop: "The agent keeps crashing in this session. Wait a little, or start another session.",
  draining: "The gateway is about to restart. Try again in a moment.",
  storage_full: "The gateway's disk is full. Free some space where it runs.",
  interrupted: "Send the message again if you still need it.",
  cancel_timeout: "The agent did not stop when asked, so the gateway ended it.",
  internal: "Try again. If it stays, look into the gateway's log.",
};

export function hintFor(code: string): string | undefined {
  return lookup(HINTS, code);
}

export function explainProblem(problem: Problem): Explanation {
  const title = problem.title ?? problem.code.replaceAll("_", " ");
  const agent = problem.acp?.message;
  // The gateway's text often quotes the agent's text, which must not appear twice.
  const own = agent && problem.detail?.includes(agent) ? [] : [problem.detail, ...(problem.errors ?? []).map((error) => error.detail)];
  const said = own.filter((part): part is string => !!part && part !== title).map((part) => sentence(withoutTitle(part, title)));
  const detail = [...new Set(agent ? [...said, agent] : said)].join(" ");
  const hint = hintFor(problem.code);
  return { title, ...(detail ? { detail } : {}), ...(hint ? { hint } : {}) };
}

/** The gateway's text may begin with the title. */
function withoutTitle(part: string, title: string): string {
  return part.toLowerCase().startsWith(`${title.toLowerCase()}: `) ? part.slice(title.length + 2) : part;
}

export function explain(error: unknown): Explanation {
  if (error instanceof ApiProblem) return explainProblem(error.problem);
  if (error instanceof Unreachable) {
    return { title: error.message, hint: "Check that it is still running. The page tries again by itself where it can." };
  }
  return { title: "Something went wrong in this page.", detail: error instanceof Error ? error.message : String(error) };
}

/** The gateway writes details as phrases, because logs contain them too. */
export function sentence(phrase: string): string {
  const capital = /^[a-z]+[ ,]/.test(phrase) ? phrase[0]!.toUpperCase() + phrase.slice(1) : phrase;
  return /[\p{L}\p{N})]$/u.test(capital) ? `${capital}.` : capital;
}
