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

const TURNS = { work, hang, slow, formulas };

const METHODS = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "reading", version: "1" } }),
  "session/new": () => ({ sessionId: "reading-1" }),
  "session/prompt": ({ sessionId, prompt: [{ text }] }) => TURNS[text](sessionId),
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === "session/cancel") return cancelled();
  if (METHODS[method]) send({ id, result: await METHODS[method](params) });
});
