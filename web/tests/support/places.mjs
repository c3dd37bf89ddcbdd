// The members of updates that have a text, and where the page shows each text. The hostile agent sends an update for
// each payload and place.
//
// `at` is a selector in the turn, or null for a text that the page does not show. `as` is a way of `assertShown`.
// `words` makes the text from the payload. `costly` places also show the texts that are costly to render.

import { outputOf, startOf, wordsOf } from "./marks.mjs";

const text = (words) => ({ type: "text", text: words });
const content = (block) => ({ type: "content", content: block });

function message(update, at, as) {
  return { update, at, as, costly: true, members: (words, id) => ({ messageId: id, content: text(words) }) };
}

function block(at, make, rest = {}) {
  return { update: "agent_message_chunk", at: `.from-agent ${at}`, ...rest, members: (words, id) => ({ messageId: id, content: make(words) }) };
}

function tool(at, make, rest = {}) {
  return { update: "tool_call", at: `.tool ${at}`, ...rest, members: (words, id) => ({ toolCallId: id, title: "Call", status: "completed", ...make(words, id) }) };
}

function compaction(at, make, rest = {}) {
  return { update: "compaction_update", at, ...rest, members: (words, id) => ({ compactionId: id, status: "completed", ...make(words) }) };
}

function subagent(at, make) {
  return { update: "subagent_update", at, members: (words, id) => ({ sessionId: id, ...make(words) }) };
}

/** In a later version of ACP: the page ignores them. */
function unknown(update, members = (words, id) => ({ messageId: id, content: [text(words)], title: words, terminalId: id, command: words, data: words })) {
  return { update, at: null, members };
}

const PLACES = {
  "agent message": message("agent_message_chunk", ".from-agent .markdown", "markdown"),
  "agent thought": message("agent_thought_chunk", ".thought .markdown", "markdown"),
  "user message": message("user_message_chunk", ".from-person .plain"),
  "name of a linked resource": block(".reference", (words) => ({ type: "resource_link", uri: "javascript:alert(1)", name: words })),
  "title of a linked resource": block(".reference", (words) => ({ type: "resource_link", uri: "x", name: "x", title: words })),
  "address of a linked resource": block(".reference", (words) => ({ type: "resource_link", uri: words }), { words: startOf, as: "start" }),
  "address of a resource": block(".resource summary", (words) => ({ type: "resource", resource: { uri: words, mimeType: "text/html", text: "x" } }), { words: startOf, as: "start" }),
  "text of an HTML resource": block(".resource pre", (words) => ({ type: "resource", resource: { uri: "x.html", mimeType: "text/html", text: words } }), { costly: true }),
  "text of an SVG resource": block(".resource pre", (words) => ({ type: "resource", resource: { uri: "x.svg", mimeType: "image/svg+xml", text: words } })),
  "media type of a picture": block(".reference", (words) => ({ type: "image", data: "AAAA", mimeType: words }), { words: startOf, as: "start" }),
  "media type of a sound": block(".reference", (words) => ({ type: "audio", data: "AAAA", mimeType: words })),
  "data of a picture": block(".picture", (words) => ({ type: "image", data: words, mimeType: "image/png" }), { at: null }),
  "type of a block": block(".reference", (words) => ({ type: words })),
  "title of a tool call": tool(".tool-title", (words) => ({ title: words })),
  "status of a tool call": tool(".tool-status", (words) => ({ status: words })),
  "kind of a tool call": tool("", (words) => ({ kind: words }), { at: null }),
  "location of a tool call": tool(".locations code", (words) => ({ locations: [{ path: words, line: 1 }] })),
  "text of a tool call": tool(".markdown", (words) => ({ content: [content(text(words))] }), { as: "markdown", costly: true }),
  "path of a change": tool(".diff figcaption code", (words) => ({ content: [{ type: "diff", path: words, newText: "x" }] })),
  "old text of a change": tool(".diff-removed .diff-text", (words) => ({ content: [{ type: "diff", path: "x", oldText: words, newText: "" }] })),
  "new text of a change": tool(".diff-added .diff-text", (words) => ({ content: [{ type: "diff", path: "x", oldText: null, newText: words }] }), { costly: true }),
  "terminal of a tool call": tool(".reference", (words) => ({ content: [{ type: "terminal", terminalId: words }] })),
  "type of a content": tool("", (words) => ({ content: [{ type: words }] }), { at: null }),
  "raw input of a tool call": tool("pre", (words) => ({ rawInput: { x: words } }), { as: "json" }),
  "name in a raw input": tool("pre", (words) => ({ rawInput: { [words]: 1 } }), { as: "json" }),
  "raw output of a tool call": tool("pre", (words) => ({ rawOutput: words })),
  "command of a tool call": tool(".action > pre", (words) => ({ rawInput: { command: words } })),
  "arguments of a command": tool(".action > pre", (words) => ({ rawInput: { command: ["sh", "-c", words] } }), { as: "json" }),
  "folder of a command": tool(".action-row code", (words) => ({ rawInput: { command: "x", cwd: words } })),
  "output of a command": tool(".terminal pre", (words, id) => ({ _meta: { terminal_output: { terminal_id: id, data: words } } }), { words: outputOf, as: "output", costly: true }),
  "signal of a command": tool(".terminal figcaption span", (words, id) => ({ _meta: { terminal_exit: { terminal_id: id, exit_code: null, signal: words } } })),
  "changed title of a tool call": { update: "tool_call_update", at: ".tool-title", members: (words, id) => ({ toolCallId: id, title: words }) },
  "step of a plan": { update: "plan", at: ".plan-entry", all: (words) => ({ entries: words.map((one) => ({ content: one, priority: one, status: "pending" })) }) },
  "status of a step": { update: "plan", at: ".plan-entry", all: (words) => ({ entries: words.map((one) => ({ content: "x", status: one })) }) },
  "text of a plan": { update: "plan_update", at: ".plan .markdown", as: "markdown", members: (words, id) => ({ plan: { type: "markdown", planId: id, content: words } }) },
  "file of a plan": { update: "plan_update", at: ".plan .reference", words: startOf, as: "start", members: (words, id) => ({ plan: { type: "file", planId: id, uri: words } }) },
  "name of a removed plan": { update: "plan_removed", at: null, members: (words) => ({ planId: words }) },
  "title of a notice": { update: "notice", at: ".note", members: (words) => ({ severity: words, title: words }) },
  "description of a notice": { update: "notice", at: ".note-detail", members: (words) => ({ severity: "error", title: "x", description: words }) },
  "status of a compaction": compaction(".note", (words) => ({ status: words })),
  "summary of a compaction": compaction(".thought .markdown", (words) => ({ summary: [text(words)] }), { as: "markdown" }),
  "error of a compaction": compaction(".note-detail", (words) => ({ status: "failed", error: words })),
  "chunk of a compaction": { update: "compaction_summary_chunk", at: ".thought .markdown", as: "markdown", members: (words, id) => ({ compactionId: id, content: text(words) }) },
  // The gateway follows a limited number of children, so this child comes first.
  "message of a subagent": { ...message("agent_message_chunk", ".subagent .from-agent .markdown", "markdown"), child: true, costly: false },
  "title of a subagent": subagent(".subagent .tool-title", (words) => ({ title: words })),
  "description of a subagent": subagent(".subagent-about", (words) => ({ title: "x", description: words })),
  "state of a subagent": subagent(".subagent .tool-status", (words) => ({ state: { state: words } })),
  "message between sessions": { update: "session_message", at: ".thought-text .markdown", as: "markdown", members: (words, id) => ({ messageId: id, recipientSessionId: words, content: [text(words)] }) },
  "chunk between sessions": { update: "session_message_chunk", at: ".thought-text .markdown", as: "markdown", members: (words, id) => ({ messageId: id, senderSessionId: words, content: text(words) }) },
  "currency of a cost": { update: "usage_update", at: null, members: (words) => ({ used: 1, size: 2, cost: { amount: 1, currency: words } }) },
  "unknown mode": { update: "current_mode_update", at: null, members: (words) => ({ currentModeId: words }) },
  // The gateway compares the last part of an id with the denied modes, and reports the whole id.
  "denied mode": { update: "current_mode_update", at: ".note", members: (words) => ({ currentModeId: `${words.toWellFormed()}#yolo` }) },
  "user message of version 2": unknown("user_message"),
  "agent message of version 2": unknown("agent_message"),
  "agent thought of version 2": unknown("agent_thought"),
  "chunk of a tool call of version 2": unknown("tool_call_content_chunk", (words, id) => ({ toolCallId: id, content: content(text(words)) })),
  "terminal of version 2": unknown("terminal_update"),
  "output of a terminal of version 2": unknown("terminal_output_chunk"),
  "state of version 2": unknown("state_update", (words) => ({ state: words, stopReason: words, error: { code: 1, message: words } })),
  "kind of an update": { update: null, at: null, members: (words) => ({ sessionUpdate: words, content: text(words), title: words }) },
};

/** These updates change the frame of the session and not a turn. `hostile.mjs` sends and checks them. */
export const FRAME_UPDATES = ["available_commands_update", "config_option_update", "session_info_update"];

const named = Object.entries(PLACES);

export const UPDATE_PLACES = named.map(([name, place], index) => ({
  as: "text",
  words: wordsOf,
  costly: false,
  ...place,
  name,
  // Two letters or digits, with which the words around its payloads begin.
  mark: String(index).padStart(2, "0"),
}));
