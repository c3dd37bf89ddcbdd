// An ACP agent that puts a hostile text into every place that the protocol has for texts. A prompt names the place.

import { createInterface } from "node:readline";
import { outputOf, wordsOf } from "./marks.mjs";
import { ADDRESSES, COSTLY, FORM_FIELDS, PAYLOADS, SHORT_PARTS, WELL_FORMED } from "./payloads/index.mjs";
import { UPDATE_PLACES } from "./places.mjs";

let asked = 0;
let attached = 0;
/** The next part of the payloads for an error. The id of a session contains it, for the next process. */
let nextPart = 0;
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

const each = (mark, payloads = PAYLOADS) => payloads.map((payload, index) => wordsOf(mark, index, payload));
const all = (mark, payloads) => each(mark, payloads).join("\n\n");

/** Every payload in one of the places of `places.mjs`. */
function play(sessionId, place) {
  const payloads = place.costly ? [...PAYLOADS, ...COSTLY] : PAYLOADS;
  const words = payloads.map((payload, index) => place.words(place.mark, index, payload));
  if (place.all) return update(sessionId, place.update, place.all(words));
  const child = `child-${place.mark}`;
  if (place.child) update(sessionId, "subagent_update", { sessionId: child, title: "Child", state: { state: "running" } });
  const target = place.child ? child : sessionId;
  words.forEach((one, index) => update(target, place.update, place.members(one, `${place.mark}-${index}`)));
}

/** Wrong types where the protocol has a text, and the names of members that every object has. */
const WRONG = [7, true, null, [], ["x"], {}, { text: "x" }, "__proto__", "constructor", "toString"];

function playWrong(sessionId) {
  WRONG.forEach((wrong, index) => {
    const text = { type: "text", text: wrong };
    update(sessionId, "agent_message_chunk", { messageId: `w${index}`, content: text });
    update(sessionId, "agent_message_chunk", { messageId: `w${index}`, content: { type: "resource_link", uri: wrong, name: wrong, title: wrong } });
    update(sessionId, "agent_message_chunk", { messageId: `w${index}`, content: { type: "resource", resource: { uri: wrong, text: wrong } } });
    update(sessionId, "agent_message_chunk", { messageId: `w${index}`, content: { type: "resource", resource: wrong } });
    update(sessionId, "agent_message_chunk", { messageId: `w${index}`, content: { type: "image", data: wrong, mimeType: wrong } });
    update(sessionId, "user_message_chunk", { messageId: wrong, content: text });
    const content = [wrong, text, { type: "content", content: wrong }, { type: "diff", path: wrong, oldText: wrong, newText: wrong }, { type: "terminal", terminalId: wrong }];
    const members = { title: wrong, kind: wrong, status: wrong, content, locations: [wrong, { path: wrong, line: wrong }], rawInput: wrong, rawOutput: wrong };
    update(sessionId, "tool_call", { toolCallId: `wrong-${index}`, ...members });
    update(sessionId, "tool_call_update", { toolCallId: wrong, ...members, rawInput: { command: [wrong], cwd: wrong }, _meta: { terminal_output: wrong } });
    update(sessionId, "plan", { entries: [wrong, { content: wrong, status: wrong, priority: wrong }] });
    update(sessionId, "plan_update", { plan: { type: wrong, planId: `wrong-${index}`, content: wrong, uri: wrong, entries: wrong } });
    update(sessionId, "notice", { severity: wrong, title: wrong, description: wrong });
    update(sessionId, "compaction_update", { compactionId: `wrong-${index}`, status: wrong, summary: wrong, error: wrong });
    update(sessionId, "compaction_update", { compactionId: `wrong-s-${index}`, status: "x", summary: [wrong, text], error: wrong });
    update(sessionId, "subagent_update", { sessionId: `wrong-${index}`, title: wrong, description: wrong, state: wrong });
    update(sessionId, "session_message", { messageId: `wrong-${index}`, content: [wrong, text] });
    update(sessionId, "usage_update", { used: wrong, size: wrong, cost: { amount: wrong, currency: wrong } });
    update(sessionId, "session_info_update", { title: wrong });
  });
  const one = (name) => ({ id: `id-${name}`, value: `v-${name}`, name });
  update(sessionId, "available_commands_update", { availableCommands: WRONG.flatMap((wrong) => [wrong, { name: wrong, description: wrong }, { name: "wrong", description: wrong }]) });
  const options = WRONG.flatMap((wrong) => [wrong, { value: wrong, name: wrong, description: wrong }, { group: wrong, name: wrong, options: wrong }, { group: "g", name: wrong, options: [wrong] }]);
  const select = WRONG.map((wrong, index) => ({ ...one(wrong), id: `s${index}`, type: "select", currentValue: wrong, description: wrong, options }));
  update(sessionId, "config_option_update", { configOptions: [...WRONG, ...select, ...WRONG.map((wrong, index) => ({ id: `w${index}`, name: wrong, type: wrong, currentValue: wrong, options: wrong }))] });
}

function permission(sessionId) {
  const content = each("p1").map((words) => ({ type: "content", content: { type: "text", text: words } }));
  const options = each("p2").map((name, index) => ({ optionId: String(index), name, kind: name.toWellFormed() }));
  return request("session/request_permission", {
    sessionId,
    title: all("p3"),
    description: all("p4"),
    toolCall: { toolCallId: "asked", title: all("p5"), kind: all("p6", WELL_FORMED), locations: each("p7").map((path) => ({ path })), rawInput: { command: all("p8"), cwd: all("p9") }, content },
    options: [...options, { optionId: "all", name: all("pa"), kind: "allow_once" }],
  });
}

/** A form has a limited number of fields and bytes, so this is one of several. */
function form(sessionId, part) {
  const from = part * FORM_FIELDS;
  const names = WELL_FORMED.slice(from, from + FORM_FIELDS);
  const fields = names.map((payload, index) => {
    const [title, description, value] = ["f2", "f3", "f4"].map((place) => wordsOf(place, from + index, payload));
    return [`${index}${payload}`, { type: "string", title, description, default: value, maxLength: 100_000, format: payload }];
  });
  const untitled = names.map((payload, index) => [wordsOf("f5", from + index, payload), { type: "boolean" }]);
  const properties = Object.fromEntries([...fields, ...untitled]);
  const titled = (place) => names.map((payload, index) => ({ const: String(index), title: wordsOf(place, from + index, payload) }));
  properties.one = { type: "string", title: "one", oneOf: titled("f1") };
  properties.many = { type: "array", title: "many", items: { anyOf: titled("f8") } };
  properties.plain = { type: "string", title: "plain", enum: names.map((payload, index) => wordsOf("f9", from + index, payload)) };
  const texts = part === 1 ? { title: all("f6", WELL_FORMED), description: all("f7", WELL_FORMED) } : {};
  return request("elicitation/create", { sessionId, mode: "form", message: all("fa"), requestedSchema: { type: "object", ...texts, properties } });
}

/** The page shows the host and the whole address of a link. */
function link(sessionId, url, elicitationId = `e${asked}`) {
  return request("elicitation/create", { sessionId, mode: "url", message: all("l1"), elicitationId, url });
}

const STEPS = {
  permission,
  forms: async (sessionId) => {
    for (let part = 0; part * FORM_FIELDS < PAYLOADS.length; part += 1) await form(sessionId, part);
  },
  wrong: playWrong,
  link: (sessionId) => link(sessionId, `https://${encodeURIComponent(PAYLOADS[1])}@ok.example/?${encodeURIComponent(all("l2", WELL_FORMED))}`),
  links: async (sessionId) => {
    for (const address of ADDRESSES) await link(sessionId, address);
    for (const words of each("e1")) send({ method: "elicitation/complete", params: { elicitationId: words.toWellFormed() } });
  },
  completed: async (sessionId) => {
    // The gateway rejects an id of more than 1,024 bytes.
    const elicitationId = wordsOf("e2", 0, PAYLOADS[0]);
    await link(sessionId, "https://ok.example/", elicitationId);
    send({ method: "elicitation/complete", params: { elicitationId, words: each("e3"), [all("e4", WELL_FORMED)]: true } });
  },
  privileged: (sessionId) => each("v1", WELL_FORMED).forEach((words) => update(sessionId, "current_mode_update", { currentModeId: `${words}/yolo` })),
  other: (sessionId) => request(`_${all("o1", WELL_FORMED)}`, { sessionId, x: all("o2"), [all("o3", WELL_FORMED)]: [] }),
  file: (sessionId) => request("fs/write_text_file", { sessionId, path: `/${all("o4")}`, content: all("o5") }),
  command: (sessionId) => request("terminal/create", { sessionId, command: all("o6"), args: each("o7") }),
  frame: (sessionId) => {
    // Eight commands are offered at a time: each begins with the number of its eight.
    update(sessionId, "available_commands_update", { availableCommands: each("c1").map((words, index) => ({ name: `${Math.floor(index / 8)}-${words}`, description: wordsOf("c2", index, PAYLOADS[index]) })) });
    update(sessionId, "config_option_update", { configOptions: configOptions("g") });
    update(sessionId, "session_info_update", { title: all("s1") });
  },
  extension: (sessionId) => each("x1").forEach((words) => send({ method: `_${words.toWellFormed()}`, params: { sessionId, words, [words.toWellFormed()]: words } })),
  invalid: () => each("x2").forEach((words) => process.stdout.write(`${words.replaceAll(/\s/g, " ")}\n`)),
  stop: () => ({ stopReason: all("r1", WELL_FORMED) }),
  fail: () => {
    throw { code: -32603, message: all("r2"), data: { x: all("r3") } };
  },
  die: () => die(all("r4")),
  exitLater: () => void setTimeout(() => process.exit(3), 50),
  dieLater: () => void setTimeout(() => die(all("r5")), 50),
  output: (sessionId) => request("terminal/create", { sessionId, command: "printf", args: ["%s", ...PAYLOADS.map((payload, index) => outputOf("t1", index, payload)).filter(isArgument)] }),
};

/** A program gets no NUL, and only UTF-8. */
function isArgument(text) {
  return !text.includes("\0") && text.isWellFormed();
}

function die(words) {
  process.stderr.write(words, () => process.exit(3));
  return new Promise(() => undefined);
}

function modes(mark) {
  const availableModes = each(mark).map((name, index) => ({ id: `${index}${name}`, name, description: name }));
  return { currentModeId: availableModes[0].id, availableModes };
}

function configOptions(mark) {
  const choices = each(`${mark}1`).map((name, index) => ({ value: `${index}${name}`, name, description: name }));
  const groups = each(`${mark}2`).map((name, index) => ({ group: `${index}${name}`, name, options: [{ value: `g${index}`, name }] }));
  return [
    ...each(`${mark}3`).map((name, index) => ({ id: `${index}${name}`, name, description: name, type: "boolean", currentValue: false })),
    { id: "one", name: all(`${mark}4`), type: "select", currentValue: choices[0].value, options: choices },
    { id: "two", name: "Groups", type: "select", currentValue: "g0", options: groups },
  ];
}

async function prompt({ sessionId, prompt: blocks }) {
  const name = blocks[0].text;
  const place = UPDATE_PLACES.find((one) => one.name === name);
  const result = place ? play(sessionId, place) : await STEPS[name]?.(sessionId);
  return result?.stopReason ? result : { stopReason: "end_turn" };
}

const METHODS = {
  initialize: () => ({
    protocolVersion: 1,
    agentCapabilities: { loadSession: true, [all("i1", PAYLOADS.slice(0, 3))]: true },
    agentInfo: { name: "hostile", title: all("i2"), version: all("i3") },
  }),
  "session/new": () => ({ sessionId: `hostile-${process.pid}-${(attached += 1)}-${nextPart}`, modes: modes("m1"), configOptions: configOptions("h") }),
  "session/load": ({ sessionId }) => {
    const part = Number(sessionId.split("-").at(-1)) % SHORT_PARTS.length;
    nextPart = part + 1;
    const { from, payloads } = SHORT_PARTS[part];
    throw { code: -32601, message: payloads.map((payload, index) => wordsOf("r6", from + index, payload)).join("\n\n") };
  },
  "session/prompt": prompt,
};

async function answer({ id, method, params }) {
  try {
    if (!METHODS[method]) throw { code: -32601, message: "unknown method" };
    send({ id, result: await METHODS[method](params) });
  } catch (error) {
    send({ id, error: { code: error.code ?? -32603, message: error.message ?? String(error), ...(error.data ? { data: error.data } : {}) } });
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.method === undefined) {
    waiting.get(message.id)?.(message.result ?? message.error);
    waiting.delete(message.id);
  } else if (message.id !== undefined) {
    void answer(message);
  }
});
