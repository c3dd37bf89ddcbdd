// An ACP agent that opens sessions without a sign-in and refuses prompts until it has an API key. It repeats the key
// wherever an agent could: in its errors and on stderr.

import { createInterface } from "node:readline";

const KEY = process.env.ACCEPTED_KEY;
let received = "";

function send(message) {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function authenticate({ methodId, _meta }) {
  received = _meta?.["api-key"] ?? "";
  process.stderr.write(`${methodId} with ${received}\n`);
  if (received !== KEY) throw { code: -32000, message: `API key not valid: ${received}` };
  return {};
}

function prompt({ sessionId, prompt: [{ text }] }) {
  if (received !== KEY) throw { code: -32000, message: "Authentication required" };
  if (text === "fail") throw { code: -32603, message: `no quota for ${received}`, data: { key: received } };
  const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text: `You said ${text}` } };
  send({ method: "session/update", params: { sessionId, update } });
  return { stopReason: "end_turn" };
}

const METHODS = {
  initialize: () => ({
    protocolVersion: 1,
    agentCapabilities: { loadSession: true },
    authMethods: [{ id: "gemini-api-key", name: "Key of the provider", _meta: { "api-key": { provider: "mock" } } }],
  }),
  authenticate,
  "session/new": () => ({ sessionId: "keyed-1" }),
  "session/load": () => ({}),
  "session/prompt": prompt,
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  try {
    send({ id, result: METHODS[method](params) });
  } catch (error) {
    send({ id, error: { code: error.code ?? -32603, message: error.message, data: error.data } });
  }
});
