// The highlighter of the page, and the start of its worker.

import address from "virtual:worker-address";
import { Highlighter } from "./highlighter";

interface ScriptUrls {
  createPolicy(name: string, rules: { createScriptURL(): string }): { createScriptURL(input: string): unknown };
}

/** Browsers with Trusted Types accept the address of a worker only from a policy. */
function startWorker(): Worker {
  const { trustedTypes } = window as { trustedTypes?: ScriptUrls };
  urls ??= trustedTypes?.createPolicy("worker", { createScriptURL: () => address });
  return new Worker((urls?.createScriptURL("") ?? address) as string, { type: "module" });
}

/** A page can create a policy once. */
let urls: ReturnType<ScriptUrls["createPolicy"]> | undefined;

export const highlighter = new Highlighter(startWorker);
