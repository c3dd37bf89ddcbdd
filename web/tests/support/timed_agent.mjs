// An ACP agent that writes chunks at a steady rate. Each chunk has the time at which it was written, in milliseconds.

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

let sessions = 0;

/** The prompt has the number of events per second, and the seconds. */
async function prompt({ sessionId, prompt: [{ text }] }) {
  const [rate, seconds] = text.split(" ").map(Number);
  const began = performance.now();
  for (let at = 0; at < rate * seconds; at += 1) {
    const due = began + (at * 1000) / rate;
    if (performance.now() < due) await sleep(due - performance.now());
    const now = (performance.timeOrigin + performance.now()).toFixed(2);
    const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text: `${now} ` } };
    process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", method: "session/update", params: { sessionId, update } })}\n`);
  }
  return { stopReason: "end_turn" };
}

const METHODS = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "timed", version: "1" } }),
  "session/new": () => ({ sessionId: `timed-${(sessions += 1)}` }),
  "session/prompt": prompt,
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, result: await METHODS[method](params) })}\n`);
});
