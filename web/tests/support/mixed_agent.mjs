// An ACP agent whose turns have as many updates as the prompt says.

import { createInterface } from "node:readline";
import { mixedUpdates } from "./mixed.mjs";

let sessions = 0;

async function prompt({ sessionId, prompt: [{ text }] }) {
  for (const update of mixedUpdates(Number(text))) {
    const line = JSON.stringify({ jsonrpc: "2.0", method: "session/update", params: { sessionId, update } });
    if (!process.stdout.write(`${line}\n`)) await new Promise((resolve) => process.stdout.once("drain", resolve));
  }
  return { stopReason: "end_turn" };
}

const METHODS = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "mixed", version: "1" } }),
  "session/new": () => ({ sessionId: `mixed-${(sessions += 1)}` }),
  "session/prompt": prompt,
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, result: await METHODS[method](params) })}\n`);
});
