// An ACP agent without a model that fixes `add.mjs` in its folder: it plans, runs the test, asks before the edit and before the
// second run, and reports what it did. It runs real commands and writes real files, by itself.

import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

const OPTIONS = [
  { optionId: "once", name: "Allow once", kind: "allow_once" },
  { optionId: "always", name: "Always allow in this session", kind: "allow_always" },
  { optionId: "no", name: "Reject", kind: "reject_once" },
];
const MODES = { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask first" }, { id: "read", name: "Read only" }] };
const STEP_MS = Number(process.env.STEP_MS ?? 0);

const folders = new Map();
const waiting = new Map();
let requests = 0;

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const pause = () => new Promise((resolve) => setTimeout(resolve, STEP_MS));

class Turn {
  constructor(session) {
    this.session = session;
    this.folder = folders.get(session);
    this.always = false;
  }

  update(sessionUpdate, members) {
    if (this.ended) return;
    send({ method: "session/update", params: { sessionId: this.session, update: { sessionUpdate, ...members } } });
  }

  async say(text) {
    for (const word of text.split(/(?<= )/)) {
      this.update("agent_message_chunk", { content: { type: "text", text: word } });
      await pause();
    }
  }

  plan(done) {
    const steps = ["Run the test", "Fix add.mjs", "Run the test again"];
    const status = (index) => (index < done ? "completed" : index === done ? "in_progress" : "pending");
    this.update("plan", { entries: steps.map((content, index) => ({ content, priority: "medium", status: status(index) })) });
  }

  /** Resolves to whether a person allows the call. */
  async ask(toolCall) {
    if (this.ended) return false;
    if (this.always) return true;
    const id = ++requests;
    send({ id, method: "session/request_permission", params: { sessionId: this.session, toolCall, options: OPTIONS } });
    const { outcome } = await new Promise((resolve) => waiting.set(id, resolve));
    this.always = outcome.optionId === "always";
    return ["once", "always"].includes(outcome.optionId);
  }

  async test(toolCallId) {
    const call = { toolCallId, title: "node --test", kind: "execute", status: "pending", rawInput: { command: "node --test", cwd: this.folder } };
    this.update("tool_call", call);
    if (!(await this.ask(call))) return this.refused(toolCallId);
    this.update("tool_call_update", { toolCallId, status: "in_progress", content: [{ type: "terminal", terminalId: toolCallId }] });
    const env = { PATH: process.env.PATH, FORCE_COLOR: "1" };
    const run = promisify(execFile)(process.execPath, ["--test"], { cwd: this.folder, env });
    const { stdout, code } = await run.then(({ stdout }) => ({ stdout, code: 0 }), (error) => error);
    const _meta = { terminal_output: { terminal_id: toolCallId, data: stdout.replaceAll(/^.*duration_ms.*\n/gm, "") } };
    this.update("tool_call_update", { toolCallId, _meta });
    this.update("tool_call_update", { toolCallId, status: code === 0 ? "completed" : "failed", _meta: { terminal_exit: { terminal_id: toolCallId, exit_code: code, signal: null } } });
    return code;
  }

  refused(toolCallId) {
    this.update("tool_call_update", { toolCallId, status: "failed" });
    return null;
  }

  async fix() {
    const file = path.join(this.folder, "add.mjs");
    const oldText = await readFile(file, "utf8");
    const newText = oldText.replace("a - b", "a + b");
    const call = { toolCallId: "fix", title: "Edit add.mjs", kind: "edit", status: "pending", locations: [{ path: file, line: 3 }], content: [{ type: "diff", path: file, oldText, newText }] };
    this.update("tool_call", call);
    if (!(await this.ask(call))) return this.refused("fix");
    await writeFile(file, newText);
    this.update("tool_call_update", { toolCallId: "fix", status: "completed" });
    return 0;
  }

  async play(text) {
    this.update("agent_thought_chunk", { content: { type: "text", text: "The test shows what is wrong. I run it first." } });
    if (!/test|fix/i.test(text)) {
      await this.say(`You wrote: ${text}`);
      return "end_turn";
    }
    this.plan(0);
    await this.say("I run the test to see what fails.\n\n");
    const before = await this.test("before");
    if (before === null) return this.stopped("I may not run the test, so I stop here.");
    if (before === 0) return this.stopped("The test passes already.");
    this.plan(1);
    await this.say("`add` subtracts. I change the operator in `add.mjs`.\n\n");
    if ((await this.fix()) === null) return this.stopped("I leave the file as it is.");
    this.plan(2);
    const after = await this.test("after");
    this.plan(3);
    return this.stopped(after === 0 ? "The test passes now: `add` returned **a - b** instead of **a + b**." : "The test was not run again.");
  }

  async stopped(words) {
    await this.say(words);
    return "end_turn";
  }
}

const METHODS = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "fixer", title: "Fixer", version: "1" } }),
  "session/new": ({ cwd }) => {
    const sessionId = `fix-${folders.size + 1}`;
    folders.set(sessionId, cwd);
    return { sessionId, modes: MODES };
  },
  "session/set_mode": () => ({}),
  "session/prompt": async ({ sessionId, prompt }) => {
    const ended = new Promise((resolve) => waiting.set(sessionId, resolve));
    const turn = new Turn(sessionId);
    const stopReason = await Promise.race([turn.play(prompt[0].text ?? ""), ended]);
    // A cancelled turn says nothing more.
    turn.ended = true;
    return { stopReason };
  },
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params, result } = JSON.parse(line);
  if (method === "session/cancel") return waiting.get(params.sessionId)?.("cancelled");
  if (method === undefined) return waiting.get(id)?.(result);
  try {
    if (METHODS[method]) send({ id, result: await METHODS[method](params) });
    else if (id !== undefined) send({ id, error: { code: -32601, message: "Method not found" } });
  } catch (error) {
    send({ id, error: { code: -32603, message: error.message } });
  }
});
