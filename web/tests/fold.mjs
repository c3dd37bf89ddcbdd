// The page folds events to turns, and so does the gateway for its transcripts. Both results and the events must agree.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { createServer } from "vite";
import { Api } from "./support/api.mjs";
import { Gateway } from "./support/gateway.mjs";
import { nodeAgent } from "./support/one_chat.mjs";

const WEB = fileURLToPath(new URL("..", import.meta.url));
const MIXED = fileURLToPath(new URL("./support/mixed_agent.mjs", import.meta.url));

let gateway;
let api;
let modules;
let page;
before(async () => {
  gateway = await Gateway.start({ config: `[agents.demo]\nbuiltin = "demo"\n\n${nodeAgent("mixed", MIXED)}` });
  api = new Api(gateway.link);
  modules = await createServer({ root: WEB, configFile: false, logLevel: "error", server: { middlewareMode: true, hmr: false, ws: false }, optimizeDeps: { noDiscovery: true }, appType: "custom" });
  page = { ...(await modules.ssrLoadModule("/packages/client/src/state/fold.ts")), ...(await modules.ssrLoadModule("/packages/client/src/state/state.ts")) };
});
after(async () => {
  await modules?.close();
  await gateway?.end();
});

const textOf = (blocks) => blocks.map((block) => (block.type === "text" ? block.text : `[${block.type}]`)).join("");

async function allEvents(session) {
  const events = [];
  for (let after = ""; ; ) {
    const found = await api.call("GET", `sessions/${session}/events?limit=1000${after}`, undefined, { Accept: "application/json" });
    events.push(...found.events);
    if (!found.more) return events;
    after = `&after=${found.lastEventId}`;
  }
}

async function transcript(session) {
  const turns = [];
  for (let cursor = ""; ; ) {
    const found = await api.call("GET", `sessions/${session}/transcript?limit=50${cursor}`);
    turns.unshift(...found.turns.toReversed());
    if (!found.nextCursor) return turns;
    cursor = `&cursor=${found.nextCursor}`;
  }
}

/** An item of the page, in the words of both. Items that only one of them has are left out. */
function ofPage(item) {
  switch (item.kind) {
    case "message":
    case "thought":
    case "user":
      return { kind: item.kind === "message" ? "agent" : item.kind, text: textOf(item.blocks) };
    case "tool":
      return { kind: "tool", id: item.toolCallId, title: item.title, tool: item.toolKind, status: item.status, content: item.content.length };
    case "request":
      return { kind: "request", id: item.requestId, method: item.method, how: item.resolution?.how ?? null, by: item.resolution?.by ?? null };
    default:
      return null;
  }
}

function ofTranscript(item) {
  const { toolCall } = item;
  switch (item.type) {
    case "message":
      return { kind: item.role, text: textOf(item.content) };
    case "tool_call":
      return {
        kind: "tool",
        id: toolCall.toolCallId,
        title: toolCall.title,
        tool: toolCall.kind ?? "other",
        status: toolCall.status ?? "pending",
        content: toolCall.content?.length ?? 0,
      };
    case "request":
      return { kind: "request", id: item.requestId, method: item.method, how: item.resolution ?? null, by: item.by ?? null };
    default:
      return null;
  }
}

/** The items of the session itself. Those of subagents are in cards of their own on the page. */
const shownByPage = (turn) => turn.items.map(ofPage).filter((item) => item !== null);
const shownByGateway = (turn) => turn.items.filter((item) => !item.subagent).map(ofTranscript).filter((item) => item !== null);

/** Texts of the agent in the events of a turn. */
function textInEvents(events, promptId) {
  const own = events.filter((event) => event.type === "session.update" && event.promptId === promptId && !event.subagent);
  const chunks = own.map(({ update }) => update).filter(({ sessionUpdate }) => sessionUpdate === "agent_message_chunk");
  return chunks.map(({ content }) => textOf([content])).join("");
}

async function compare(session) {
  const events = await allEvents(session);
  const folded = page.foldAll(page.EMPTY, events).turns.filter((turn) => turn.promptId !== null);
  const turns = await transcript(session);
  assert.deepEqual(folded.map(({ promptId }) => promptId), turns.map(({ promptId }) => promptId));
  let items = 0;
  for (const [at, turn] of turns.entries()) {
    const own = folded[at];
    assert.deepEqual([own.status, own.stopReason, own.by], [turn.status, turn.stopReason ?? null, turn.by ?? null], turn.promptId);
    assert.equal(textOf(own.prompt), textOf(turn.prompt), turn.promptId);
    assert.deepEqual(shownByPage(own), shownByGateway(turn), `${turn.promptId}: ${textOf(turn.prompt)}`);
    const said = shownByPage(own).filter(({ kind }) => kind === "agent").map(({ text }) => text).join("");
    assert.equal(said, textInEvents(events, turn.promptId), turn.promptId);
    items += turn.items.length;
  }
  return items;
}

/** Sends a message, answers what the agent asks, and waits for the end of the turn. */
async function turn(session, text) {
  const prompt = await api.prompt(session, text);
  const deadline = Date.now() + 30_000;
  while (Date.now() < deadline) {
    const { status } = await api.call("GET", `sessions/${session}/prompts/${prompt}`);
    if (status === "completed" || status === "failed") return;
    const { requests } = await api.call("GET", `sessions/${session}/requests`);
    for (const { requestId, method, params } of requests) {
      const isPermission = method === "session/request_permission";
      const answer = isPermission ? { optionId: params.options[0].optionId } : { action: "decline" };
      await api.answer(session, requestId, isPermission ? "permissions" : "elicitations", answer);
    }
  }
  throw new Error(`${text} does not end`);
}

test("turns of the demo agent", async () => {
  const session = await api.session("demo");
  await api.call("PUT", `sessions/${session}/config/pace`, { value: "instant" });
  const events = await allEvents(session);
  const commands = events.filter(({ update }) => update?.availableCommands).at(-1)?.update.availableCommands ?? [];
  const names = commands.map(({ name }) => name).filter((name) => !["slow", "crash", "exit", "hang"].includes(name));
  assert.ok(names.length > 5, `commands: ${names}`);
  for (const text of ["hello", ...names.map((name) => `/${name}`)]) await turn(session, text);
  console.log(`${await compare(session)} items of ${names.length + 1} turns agree`);
});

test("a long turn of mixed updates", async () => {
  const session = await api.session("mixed");
  await turn(session, "5000");
  console.log(`${await compare(session)} items agree`);
});
