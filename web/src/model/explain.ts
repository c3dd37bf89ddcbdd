// Converts errors to text for people, with the next step.

import { ApiProblem, Unreachable, type Problem } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { strings } from "../strings";

export interface Explanation {
  title: string;
  detail?: string;
  hint?: string;
}

export function hintFor(code: string): string | undefined {
  return lookup(strings.problems.hints, code);
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
    return { title: error.message, hint: strings.problems.unreachableHint };
  }
  return { title: strings.problems.inPage, detail: error instanceof Error ? error.message : String(error) };
}

/** The gateway writes details as phrases, because logs contain them too. */
export function sentence(phrase: string): string {
  const capital = /^[a-z]+[ ,]/.test(phrase) ? phrase[0]!.toUpperCase() + phrase.slice(1) : phrase;
  return /[\p{L}\p{N})]$/u.test(capital) ? `${capital}.` : capital;
}
