// CopilotKit: its runtime between its client and the AG-UI of the gateway. Prints what an application would see, as JSON.
//
//   node copilotkit.mjs URL KEY SCENARIO PROMPT
//
// The messages in PROMPT are separated by `|`.

import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";
// The client connects to its runtime only in a browser.
globalThis.window = globalThis;
const { HttpAgent } = await import("@ag-ui/client");
const { CopilotKitCore, ɵInterruptState: InterruptState } = await import("@copilotkit/core");
const { CopilotRuntime } = await import("@copilotkit/runtime/v2");
const { createCopilotNodeListener } = await import("@copilotkit/runtime/v2/node");

const [url, key, scenario, ...rest] = process.argv.slice(2);
const prompts = rest.join(" ").split("|");

const gateway = new HttpAgent({ url, headers: { authorization: `Bearer ${key}` } });
const runtime = new CopilotRuntime({ agents: { default: gateway } });
const server = createServer(createCopilotNodeListener({ runtime, basePath: "/api/copilotkit" }));
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const errors = [];
const core = new CopilotKitCore({ runtimeUrl: `http://127.0.0.1:${server.address().port}/api/copilotkit` });
core.subscribe({ onError: ({ code, error }) => void errors.push({ code, message: error.message }) });
for (let n = 0; n < 200 && !core.getAgent("default"); n += 1) await sleep(50);

/** A chat of its own in the client. */
const open = (name) => {
  const agent = core.getAgent("default");
  agent.threadId = `${name}-${process.pid}`;
  return agent;
};

/** Runs the agent as a chat component does. Returns what the run reports. */
const run = async (agent, parameters = {}) => {
  const seen = { interrupts: [], errors: [], finished: 0, result: null };
  const { unsubscribe } = agent.subscribe({
    onRunErrorEvent: ({ event }) => void seen.errors.push(event.message),
    onRunFinishedEvent: ({ event }) => {
      seen.finished += 1;
      seen.interrupts = event.outcome?.interrupts ?? [];
      seen.result = event.result;
    },
  });
  await core.runAgent({ agent, ...parameters });
  unsubscribe();
  return seen;
};

const say = (agent, content) => {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
  return run(agent);
};

const shown = (agent, seen) => ({
  roles: agent.messages.map(({ role }) => role),
  answers: agent.messages.filter(({ role, content }) => role === "assistant" && content).map(({ content }) => content),
  reasoning: agent.messages.filter(({ role }) => role === "reasoning").map(({ content }) => content),
  tools: agent.messages.filter(({ role }) => role === "tool").map(({ content }) => content),
  finished: seen.map(({ finished }) => finished),
  runErrors: seen.flatMap((one) => one.errors),
  interrupts: seen.map(({ interrupts }) => interrupts.map(({ id, reason, message }) => ({ id, reason, message }))),
  results: seen.map(({ result }) => result ?? null),
  errors,
});

/** Answers the interrupt as `useInterrupt` does, then sends another message. */
const answered = async (payload) => {
  const agent = open("answer");
  const first = await say(agent, prompts[0]);
  const state = new InterruptState();
  state.setStandard(first.interrupts);
  const decision = state.resolve(payload);
  for (const { toolCallId, content } of decision.toolResults ?? []) {
    agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId, content });
  }
  const second = await run(agent, { resume: decision.resume });
  const third = await say(agent, prompts[1]);
  return shown(agent, [first, second, third]);
};

const picture = { type: "image", source: { type: "data", value: "iVBORw0KGgo=", mimeType: "image/png" } };

const scenarios = {
  async conversation() {
    const agent = open("conversation");
    const seen = [];
    for (const prompt of prompts) seen.push(await say(agent, prompt));
    return shown(agent, seen);
  },
  // A new message while an interrupt waits.
  async conflict() {
    const agent = open("conflict");
    return shown(agent, [await say(agent, prompts[0]), await say(agent, prompts[1])]);
  },
  approve: () => answered({ approved: true }),
  deny: () => answered({ approved: false }),
  // A text, a text with a picture, and a text again.
  async picture() {
    const agent = open("picture");
    const seen = [];
    for (const content of [prompts[0], [{ type: "text", text: prompts[0] }, picture], prompts[0]]) {
      seen.push(await say(agent, content));
    }
    return shown(agent, seen);
  },
  // Another program cancels the turn while the client waits.
  async cancelled() {
    const agent = open("cancelled");
    const turn = say(agent, prompts[0]);
    const api = async (method, path) => {
      const response = await fetch(new URL(path, url), { method, headers: { authorization: `Bearer ${key}` } });
      return response.json();
    };
    for (let session; !session; await sleep(50)) {
      session = (await api("GET", "/v1/sessions")).sessions.find(({ state }) => state === "running");
      if (session) await api("POST", `/v1/sessions/${session.sessionId}/cancel`);
    }
    return shown(agent, [await turn]);
  },
};

console.log(JSON.stringify(await scenarios[scenario]()));
process.exit(0);
