// The scripts that the page starts beside itself. Browsers with Trusted Types accept their addresses only from a policy, and a
// page can create a policy once.

import highlighter from "virtual:worker-address";

const ADDRESSES = { highlighter: () => highlighter, notices: () => new URL("notices.js", document.baseURI).href };
export type Script = keyof typeof ADDRESSES;

interface ScriptUrls {
  createPolicy(name: string, rules: { createScriptURL(script: Script): string }): { createScriptURL(script: Script): unknown };
}

let urls: ReturnType<ScriptUrls["createPolicy"]> | undefined;

export function scriptAddress(script: Script): string {
  const { trustedTypes } = window as { trustedTypes?: ScriptUrls };
  urls ??= trustedTypes?.createPolicy("worker", { createScriptURL: (name) => ADDRESSES[name]() });
  return (urls?.createScriptURL(script) ?? ADDRESSES[script]()) as string;
}
