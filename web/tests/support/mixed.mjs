// Updates of a long turn: messages in chunks, thoughts, tool calls with diffs and output, and plans.

const WORDS = ["the parser reads", "one line at a time", "and keeps", "what it has", "until the rest", "arrives"];

/** The updates of one step: 20 of them. */
function step(at) {
  const message = { messageId: `m${at}` };
  const text = (words) => ({ content: { type: "text", text: words } });
  const chunks = Array.from({ length: 9 }, (_, part) => ({
    sessionUpdate: "agent_message_chunk",
    ...message,
    ...text(part === 0 ? `Step ${at}: ` : `${WORDS[(at + part) % WORDS.length]} `),
  }));
  const thoughts = Array.from({ length: 4 }, (_, part) => ({
    sessionUpdate: "agent_thought_chunk",
    messageId: `t${at}`,
    ...text(`${WORDS[(at + part) % WORDS.length]} `),
  }));
  const edit = `edit${at}`;
  const diff = { type: "diff", path: `/w/src/part${at}.rs`, oldText: "let a = 1;\n", newText: `let a = ${at};\n` };
  const run = `run${at}`;
  const output = (words) => ({ content: [{ type: "content", ...text(words) }] });
  return [
    ...thoughts,
    ...chunks,
    { sessionUpdate: "tool_call", toolCallId: edit, title: `Edit part${at}.rs`, kind: "edit", status: "pending" },
    { sessionUpdate: "tool_call_update", toolCallId: edit, status: "completed", content: [diff] },
    { sessionUpdate: "tool_call", toolCallId: run, title: `cargo test part${at}`, kind: "execute", status: "in_progress" },
    { sessionUpdate: "tool_call_update", toolCallId: run, ...output("running 3 tests\n") },
    { sessionUpdate: "tool_call_update", toolCallId: run, status: "completed", ...output("running 3 tests\nok\n") },
    { sessionUpdate: "usage_update", used: at, size: 100_000 },
    { sessionUpdate: "plan", entries: [{ content: "Read", priority: "high", status: "completed" }, { content: `Step ${at}`, priority: "low", status: "in_progress" }] },
  ];
}

export function* mixedUpdates(count) {
  for (let at = 1, left = count; left > 0; at += 1) {
    const updates = step(at).slice(0, left);
    left -= updates.length;
    yield* updates;
  }
}
