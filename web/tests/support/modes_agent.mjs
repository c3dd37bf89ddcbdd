// An ACP agent with privileged modes: it offers them as modes, as values of an option and as an option of a permission
// request, and enters one by itself.

import { createInterface } from "node:readline";

const waiting = new Map();

function send(message) {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function askPermission(sessionId) {
  const option = (optionId, name, kind) => ({ optionId, name, kind });
  const options = [
    option("bypassPermissions", "Yes, and bypass permissions", "allow_always"),
    option("o-2", "Yes, use yolo", "allow_always"),
    option("default", "Yes, and approve edits", "allow_once"),
  ];
  const toolCall = { toolCallId: "plan", title: "Ready to code?", kind: "switch_mode" };
  send({ id: 0, method: "session/request_permission", params: { sessionId, toolCall, options } });
  return new Promise((resolve) => waiting.set(0, resolve));
}

const said = (sessionId, text) => ({ sessionId, update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } } });

async function prompt({ sessionId, prompt: [{ text }] }) {
  if (text === "plan") {
    const { outcome } = await askPermission(sessionId);
    send({ method: "session/update", params: said(sessionId, `chosen: ${outcome.optionId}`) });
  } else {
    const update = { sessionUpdate: "current_mode_update", currentModeId: "bypassPermissions" };
    send({ method: "session/update", params: { sessionId, update } });
  }
  return { stopReason: "end_turn" };
}

const MODES = {
  currentModeId: "default",
  availableModes: [
    { id: "default", name: "Default" },
    { id: "acceptEdits", name: "Accept edits" },
    { id: "bypassPermissions", name: "Bypass permissions" },
  ],
};
const OPTIONS = [
  {
    id: "sandbox",
    name: "Sandbox",
    type: "select",
    currentValue: "on",
    options: [
      { value: "on", name: "On" },
      { value: "full-access", name: "Full access" },
    ],
  },
  { id: "yolo", name: "Yolo", type: "boolean", currentValue: false },
];

const METHODS = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "modes", version: "1" } }),
  "session/new": () => ({ sessionId: "modes-1", modes: MODES, configOptions: OPTIONS }),
  "session/set_mode": () => ({}),
  "session/prompt": prompt,
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params, result } = JSON.parse(line);
  if (method === undefined) return waiting.get(id)?.(result);
  if (METHODS[method]) send({ id, result: await METHODS[method](params) });
});
