// An ACP agent whose turns have what a person reads: calls that worked and failed, code, a change to a file, the coloured output
// of a command, code that takes minutes to highlight, and formulas.

import { createInterface } from "node:readline";

let cancelled = () => undefined;

function send(message) {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function update(sessionId, sessionUpdate, members) {
  send({ method: "session/update", params: { sessionId, update: { sessionUpdate, ...members } } });
}

function call(sessionId, toolCallId, title, kind, status, members = {}) {
  update(sessionId, "tool_call", { toolCallId, title, kind, status, ...members });
}

function say(sessionId, text) {
  update(sessionId, "agent_message_chunk", { content: { type: "text", text } });
}

const BEFORE = ["fn main() {", "    let limit = 20;", "    run(limit);", "}", ""].join("\n");
const AFTER = ["fn main() {", "    let limit = 30;", "    let path = \"a\";", "    run(limit);", "}", ""].join("\n");
const OUTPUT = "\u001b[1;32m   Compiling\u001b[0m parser v0.1.0\r\n\u001b[31merror\u001b[0m: expected `;`\r\n\u001b[30;42m PASS \u001b[0m 3 tests\r\n";

function work(sessionId) {
  call(sessionId, "r1", "Read src/main.rs", "read", "completed", { locations: [{ path: "/w/src/main.rs" }] });
  call(sessionId, "r2", "Read src/parser.rs", "read", "completed", { locations: [{ path: "/w/src/parser.rs" }] });
  call(sessionId, "s1", "Search for limit", "search", "completed", { content: [{ type: "content", content: { type: "text", text: "needle in src/main.rs" } }] });
  call(sessionId, "f1", "Read src/missing.rs", "read", "failed");
  say(sessionId, "The limit is a constant:\n\n```rust\n/// The limit.\nfn limit() -> u64 {\n    20\n}\n```\n");
  call(sessionId, "e1", "Edit src/main.rs", "edit", "completed", { content: [{ type: "diff", path: "/w/src/main.rs", oldText: BEFORE, newText: AFTER }] });
  call(sessionId, "c1", "cargo test", "execute", "in_progress", { content: [{ type: "terminal", terminalId: "c1" }] });
  update(sessionId, "tool_call_update", { toolCallId: "c1", _meta: { terminal_output_delta: { terminal_id: "c1", data: OUTPUT } } });
  update(sessionId, "tool_call_update", { toolCallId: "c1", status: "completed", _meta: { terminal_exit: { terminal_id: "c1", exit_code: 0, signal: null } } });
  say(sessionId, "Done.");
  return { stopReason: "end_turn" };
}

async function hang(sessionId) {
  call(sessionId, "h1", "Read one.rs", "read", "completed");
  call(sessionId, "h2", "Read two.rs", "read", "completed");
  await new Promise((resolve) => (cancelled = resolve));
  return { stopReason: "cancelled" };
}

function slow(sessionId) {
  say(sessionId, `\`\`\`markdown\n${"[a](".repeat(5000)}\n\`\`\`\n\n\`\`\`rust\nfn after() {}\n\`\`\`\n`);
  return { stopReason: "end_turn" };
}

const FORMULAS = String.raw`# The sum $\sum_i x_i$

For \(x \in \mathbb{R}\) the limit is $\frac{1}{2}$, and $5 or $10 is a price. The variable $HOME is not set, and ~$x$~ is code.

$$
\begin{aligned}
f(x) &= x^2 \\
     &= \boxed{4}
\end{aligned}
$$

An error: $\frac{1$.
`.replaceAll("~", "`");

/** The message arrives in pieces that split its formulas. The cancellation ends its last formula. */
async function formulas(sessionId) {
  for (let from = 0; from < FORMULAS.length; from += 7) say(sessionId, FORMULAS.slice(from, from + 7));
  say(sessionId, "\n\nUnfinished: $x^2 +");
  await new Promise((resolve) => (cancelled = resolve));
  say(sessionId, " 1$");
  return { stopReason: "cancelled" };
}

/** What agents that run commands by themselves send: plain text, a fence around it, colours in a fence, and only a raw result. */
function output(sessionId) {
  const text = (words) => ({ content: [{ type: "content", content: { type: "text", text: words } }] });
  call(sessionId, "o1", "ls pkg", "execute", "completed", { rawInput: { command: "ls pkg" }, ...text("__init__.py\n__main__.py\n# not a title\n\n* 3 files\n") });
  call(sessionId, "o2", "pytest", "execute", "completed", { rawInput: { command: "pytest" }, ...text("```console\n\u001b[32m1 passed\u001b[0m in __main__.py\n```") });
  call(sessionId, "o3", "cat README.md", "execute", "completed", { rawInput: { command: "cat README.md" }, ...text("# Title\n```sh\nmake\n```\n\n```sh\nmake test\n```\n") });
  call(sessionId, "o4", "Run the linter", "execute", "completed", { rawInput: { command: "lint" }, rawOutput: { output: "__a__ is *unused*\n", exit_code: 1 } });
  call(sessionId, "o5", "Read pkg/__init__.py", "read", "completed", text("```python\n__all__ = [\"a\"]\n```"));
  call(sessionId, "o6", "Find names", "search", "completed", text("__init__.py:1\n__main__.py:2\n"));
  say(sessionId, `The end:\n\n\`\`\`\n\u001b[31merror\u001b[0m: failed\n${"a line of the output\n".repeat(80)}\`\`\`\n`);
  say(sessionId, `\n| Name | What it does with a longer text | Third | Fourth | Fifth | Sixth |\n|---|---|---|---|---|---|\n| configuration | ${"words ".repeat(30)} | Uninterruptible | Characteristics | Responsibilities | \`internationalization_of_everything\` |\n`);
  say(sessionId, "\n\nشكرا لك على المساعدة\n\n* واحد\n* اثنان\n\nAnd English again.");
  return { stopReason: "end_turn" };
}

const MANY = 10_000_000;

/** Single lines of 10 MB in each place that shows a text of an agent. */
function long(sessionId, [, place]) {
  const line = "The quick brown fox. ".repeat(MANY / 21);
  const text = (words) => ({ content: [{ type: "content", content: { type: "text", text: words } }] });
  const PLACES = {
    message: () => say(sessionId, line),
    fence: () => say(sessionId, `\`\`\`text\n${line}\n\`\`\`\n`),
    letters: () => say(sessionId, "a".repeat(MANY)),
    output: () => call(sessionId, "l1", "cat line", "execute", "completed", text(line)),
    rewritten: () => call(sessionId, "l2", "progress", "execute", "completed", text(`${line.replaceAll(". ", ".\r")}done`)),
    read: () => call(sessionId, "l3", "Read line", "read", "completed", text(line)),
    raw: () => call(sessionId, "l4", "Use a tool", "other", "failed", { rawOutput: { line } }),
    diff: () => call(sessionId, "l5", "Edit line", "edit", "completed", { content: [{ type: "diff", path: "/w/line", oldText: "short", newText: line }] }),
  };
  PLACES[place]();
  return { stopReason: "end_turn" };
}

const TURNS = { work, hang, slow, formulas, output, long };

const METHODS = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "reading", version: "1" } }),
  "session/new": () => ({ sessionId: "reading-1" }),
  "session/prompt": ({ sessionId, prompt: [{ text }] }) => TURNS[text.split(" ")[0]](sessionId, text.split(" ")),
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === "session/cancel") return cancelled();
  if (METHODS[method]) send({ id, result: await METHODS[method](params) });
});
