// An ACP agent that puts hostile words into every place that the protocol has for words.

import { createInterface } from "node:readline";
import { PAYLOADS } from "./payloads.mjs";

let asked = 0;
const waiting = new Map();

function send(message) {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function request(method, params) {
  asked += 1;
  send({ id: `q${asked}`, method, params });
  return new Promise((resolve) => waiting.set(`q${asked}`, resolve));
}

function update(sessionId, sessionUpdate, members) {
  send({ method: "session/update", params: { sessionId, update: { sessionUpdate, ...members } } });
}

function sayEverywhere(sessionId, words, index) {
  const text = { type: "text", text: words };
  update(sessionId, "agent_message_chunk", { content: text, messageId: `m${index}` });
  update(sessionId, "agent_thought_chunk", { content: text, messageId: `t${index}` });
  update(sessionId, "tool_call", {
    toolCallId: `c${index}`,
    title: words,
    kind: words,
    status: "completed",
    locations: [{ path: words, line: 1 }],
    content: [
      { type: "content", content: text },
      { type: "diff", path: words, oldText: words, newText: `${words}\n${words}` },
      { type: "terminal", terminalId: words },
      { type: "content", content: { type: "resource_link", uri: words, name: words } },
      { type: "content", content: { type: "resource", resource: { uri: words, text: words } } },
      { type: "content", content: { type: "image", data: words, mimeType: words } },
    ],
  });
  update(sessionId, "plan_update", { plan: { type: "markdown", planId: `p${index}`, content: words } });
  update(sessionId, "notice", { severity: words, title: words, description: words });
  update(sessionId, "compaction_update", { compactionId: `k${index}`, status: words, summary: [text], error: words });
  update(sessionId, "subagent_update", { sessionId: `child${index}`, title: words, description: words, state: { state: words } });
  update(`child${index}`, "agent_message_chunk", { content: text });
  update(sessionId, "session_message", { messageId: `s${index}`, recipientSessionId: `child${index}`, content: [text] });
  update(sessionId, "tool_call", { toolCallId: `raw${index}`, title: words, rawInput: { [words]: words }, rawOutput: words });
}

function form(all) {
  const options = PAYLOADS.slice(0, 5).map((words) => ({ const: words, title: words, description: words }));
  const named = PAYLOADS.slice(0, 8).map((words) => [words, { type: "string", title: words, description: words, default: words }]);
  return {
    type: "object",
    title: all,
    description: all,
    properties: {
      ...Object.fromEntries(named),
      one: { type: "string", title: PAYLOADS[0], oneOf: options },
      many: { type: "array", title: PAYLOADS[1], items: { anyOf: options } },
      yes: { type: "boolean", title: PAYLOADS[2] },
    },
  };
}

async function prompt({ sessionId, prompt: blocks }) {
  if (blocks[0].text === "fail") throw { code: -32603, message: PAYLOADS.join(" ") };
  PAYLOADS.forEach((words, index) => sayEverywhere(sessionId, words, index));
  const all = PAYLOADS.join(" ");
  update(sessionId, "plan", { entries: PAYLOADS.map((content) => ({ content, priority: content, status: content })) });
  update(sessionId, "available_commands_update", { availableCommands: PAYLOADS.map((name) => ({ name, description: name })) });
  update(sessionId, "usage_update", { used: 1, size: 2, cost: { amount: 1, currency: all } });
  update(sessionId, "session_info_update", { title: all });
  const outcome = await request("session/request_permission", {
    sessionId,
    toolCall: { toolCallId: "c0", title: all, content: [{ type: "content", content: { type: "text", text: all } }] },
    options: PAYLOADS.slice(0, 3).map((name, index) => ({ optionId: `${index}${name}`, name, kind: "allow_once" })),
  });
  await request("elicitation/create", { sessionId, mode: "form", message: all, requestedSchema: form(all) });
  const url = `https://${encodeURIComponent(PAYLOADS[1])}@ok.example/?${encodeURIComponent(all)}`;
  await request("elicitation/create", { sessionId, mode: "url", message: all, elicitationId: "e1", url });
  return { stopReason: outcome?.outcome?.outcome === "selected" ? "end_turn" : "cancelled" };
}

const METHODS = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "hostile", title: PAYLOADS[1], version: PAYLOADS[1] } }),
  "session/new": () => ({
    sessionId: "hostile-1",
    modes: { currentModeId: "m", availableModes: [{ id: "m", name: PAYLOADS[0], description: PAYLOADS[1] }] },
    configOptions: [{ id: "o", name: PAYLOADS[1], type: "select", currentValue: "v", options: [{ value: "v", name: PAYLOADS[2] }] }],
  }),
  "session/prompt": prompt,
};

async function answer({ id, method, params }) {
  try {
    if (!METHODS[method]) throw { code: -32601, message: "unknown method" };
    send({ id, result: await METHODS[method](params) });
  } catch (error) {
    send({ id, error: { code: error.code ?? -32603, message: error.message ?? String(error) } });
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.method === undefined) {
    waiting.get(message.id)?.(message.result);
    waiting.delete(message.id);
  } else if (message.id !== undefined) {
    void answer(message);
  }
});
