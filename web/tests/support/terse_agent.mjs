// An ACP agent with short titles: it truncates titles, reports the reason of an error in `data` and the output of
// commands in `_meta`, and does not complete the tool call of a cancelled turn. Existing agents do each of these.

import { createInterface } from "node:readline";

const waiting = new Map();
let cancelled = () => undefined;

function send(message) {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function update(sessionId, sessionUpdate, members) {
  send({ method: "session/update", params: { sessionId, update: { sessionUpdate, ...members } } });
}

function askPermission(sessionId, toolCall) {
  send({
    id: 0,
    method: "session/request_permission",
    params: { sessionId, toolCall, options: [{ optionId: "yes", name: "Allow", kind: "allow_once" }] },
  });
  return new Promise((resolve) => waiting.set(0, resolve));
}

async function run(sessionId) {
  const rawInput = { command: "rm -rf build && make all", description: "Build anew" };
  await askPermission(sessionId, { toolCallId: "run", title: "rm -rf build", kind: "execute", status: "pending", rawInput });
  const report = (_meta, members) => update(sessionId, "tool_call_update", { toolCallId: "run", _meta, ...members });
  report({}, { status: "in_progress", content: [{ type: "terminal", terminalId: "run" }] });
  report({ terminal_output_delta: { terminal_id: "run", data: "cc main.c\n" } });
  report({ terminal_output_delta: { terminal_id: "run", data: "done: build/app\n" } });
  report({ terminal_exit: { terminal_id: "run", exit_code: 0, signal: null } }, { status: "completed" });
  return { stopReason: "end_turn" };
}

async function prompt({ sessionId, prompt: [{ text }] }) {
  if (text === "run") return run(sessionId);
  if (text === "hang") {
    update(sessionId, "tool_call", { toolCallId: "hang", title: "sleep 300", kind: "execute", status: "in_progress" });
    await new Promise((resolve) => (cancelled = resolve));
    return { stopReason: "cancelled" };
  }
  throw { code: -32603, message: "Internal error", data: { details: "the model is not installed", model: "mock-1" } };
}

const METHODS = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "terse", version: "1" } }),
  "session/new": () => ({ sessionId: "terse-1" }),
  "session/prompt": prompt,
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params, result } = JSON.parse(line);
  if (method === "session/cancel") return cancelled();
  if (method === undefined) return waiting.get(id)?.(result);
  try {
    send({ id, result: await METHODS[method](params) });
  } catch (error) {
    send({ id, error: { code: error.code ?? -32603, message: error.message, data: error.data } });
  }
});
