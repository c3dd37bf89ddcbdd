// A small ACP agent that answers each prompt with updates.

import { createInterface } from "node:readline";

/** `play` yields the updates of a turn for the text of its prompt. A full pipe makes it wait. */
export function serve(name, play) {
  let sessions = 0;

  async function prompt({ sessionId, prompt: [{ text }] }) {
    for await (const update of play(text)) {
      const line = JSON.stringify({ jsonrpc: "2.0", method: "session/update", params: { sessionId, update } });
      if (!process.stdout.write(`${line}\n`)) await new Promise((resolve) => process.stdout.once("drain", resolve));
    }
    return { stopReason: "end_turn" };
  }

  const methods = {
    initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name, version: "1" } }),
    "session/new": () => ({ sessionId: `${name}-${(sessions += 1)}` }),
    "session/prompt": prompt,
  };

  createInterface({ input: process.stdin }).on("line", async (line) => {
    const { id, method, params } = JSON.parse(line);
    if (id === undefined) return;
    process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, result: await methods[method](params) })}\n`);
  });
}
