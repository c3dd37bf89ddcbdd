// An ACP agent with a session in its own store, which it lists and loads with its history. The argument is the folder of the session.

import { createInterface } from "node:readline";

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const say = (sessionId, sessionUpdate, text) => send({ method: "session/update", params: { sessionId, update: { sessionUpdate, content: { type: "text", text } } } });
let created = 0;

const METHODS = {
  initialize: () => ({
    protocolVersion: 1,
    agentCapabilities: { loadSession: true, sessionCapabilities: { list: {} } },
    agentInfo: { name: "remembering", version: "1" },
  }),
  "session/new": () => {
    created += 1;
    return { sessionId: `new-${created}` };
  },
  "session/list": () => ({ sessions: [{ sessionId: "old-1", cwd: process.argv[2], title: "Work from a terminal", updatedAt: "2026-01-02T03:04:05Z" }] }),
  "session/load": ({ sessionId }) => {
    say(sessionId, "user_message_chunk", "What did we decide?");
    say(sessionId, "agent_message_chunk", "We keep the queue.");
    return {};
  },
  "session/prompt": ({ sessionId, prompt }) => {
    say(sessionId, "agent_message_chunk", `You wrote: ${prompt[0].text}`);
    return { stopReason: "end_turn" };
  },
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined || method === undefined) return;
  send(METHODS[method] ? { id, result: METHODS[method](params) } : { id, error: { code: -32601, message: "Method not found" } });
});
