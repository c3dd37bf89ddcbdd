// Tabs of one browser share one stream: twenty tabs work over HTTP/1.1, which permits six connections to one host.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Api } from "./support/api.mjs";
import { launch, Watch } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { Gateway } from "./support/gateway.mjs";
import { nodeAgent } from "./support/one_chat.mjs";

const TABS = 20;
const agent = fileURLToPath(new URL("support/mixed_agent.mjs", import.meta.url));
const STREAM = /\/v1\/(events|sessions\/[^/]+\/events)\?/;

let browser;
let gateway;
let watch;
let api;
const tabs = [];

before(async () => {
  browser = await launch();
  // A process for each session: no tab waits for one.
  const config = nodeAgent("mixed", agent, [`pool = { max_size = ${TABS + 4} }`]);
  gateway = await Gateway.start({ config: `${config}[agents.demo]\nbuiltin = "demo"\n` });
  api = new Api(gateway.link);
  // The gateway is restarted.
  watch = await Watch.page(browser, gateway.origin, { allowFailedRequests: true });
});
after(async () => {
  try {
    await watch?.close();
  } finally {
    await browser?.close();
    await gateway?.end();
  }
});

/** Opens a tab with this session. */
async function open(session, page) {
  const streams = new Set();
  page.on("request", (request) => STREAM.test(request.url()) && streams.add(request));
  for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => streams.delete(request));
  const tab = { page, chat: new Chat(page), session, streams, leads: () => [...streams].some((request) => request.url().includes("/v1/events?")) };
  await page.goto(`${gateway.origin}/#key=${api.key}`);
  await page.getByRole("button", { name: "Start session" }).waitFor();
  await page.evaluate((id) => (location.hash = `#/s/${id}`), session);
  await tab.chat.message.waitFor();
  tabs.push(tab);
  return tab;
}

async function ask({ chat }) {
  await chat.send("20");
  await chat.ended("Finished");
}

/** Waits until exactly one tab has a stream, and returns the tab. */
async function leader() {
  const deadline = Date.now() + 20_000;
  for (;;) {
    const all = tabs.flatMap((tab) => [...tab.streams].map((request) => request.url()));
    const leading = tabs.filter((tab) => tab.leads());
    if (all.length === 1 && leading.length === 1) return leading[0];
    assert.ok(Date.now() < deadline, `streams: ${all.join("\n")}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function close(tab) {
  tabs.splice(tabs.indexOf(tab), 1);
  await tab.page.close();
}

test("twenty tabs with a session each work over HTTP/1.1 with one stream", async () => {
  await open(await api.session("mixed"), watch.page);
  for (let count = 1; count < TABS; count += 1) await open(await api.session("mixed"), await watch.newPage());
  for (const tab of tabs) await ask(tab);
  await leader();
  assert.equal(tabs.length, TABS);
  // What happens in a session is shown in its tab and in no other.
  for (const { chat } of tabs) assert.equal(await chat.turns.count(), 1);
});

test("two tabs with one session show the same", async () => {
  const [first] = tabs;
  const second = await open(first.session, await watch.newPage());
  // A turn that it found at its start would be marked as new.
  await second.chat.ended("Finished");
  await ask(first);
  await second.chat.turns.nth(1).waitFor();
  await second.chat.ended("Finished");
  await first.chat.sameAs(await second.chat.transcript());
  await close(second);
});

test("another tab leads after the leading tab is closed, and nothing is lost", async () => {
  const leading = await leader();
  const other = await open(await api.session("demo"), await watch.newPage());
  await other.chat.send("/slow 3");
  await close(leading);
  await other.chat.ended("Finished");
  assert.notEqual(await leader(), leading);
  const { events } = await api.call("GET", `sessions/${other.session}/events?limit=1000`);
  const said = events.flatMap(({ update }) => (update?.sessionUpdate === "agent_message_chunk" ? [update.content.text] : [])).join("");
  const last = said.trim().split("\n").at(-1);
  await other.chat.lastTurn.getByText(last.slice(-20)).last().waitFor();
});

test("another tab leads while the leading tab is frozen", async () => {
  const leading = await leader();
  const devtools = await watch.context.newCDPSession(leading.page);
  await devtools.send("Page.setWebLifecycleState", { state: "frozen" });
  const other = tabs.find((tab) => tab !== leading);
  await ask(other);
  await devtools.send("Page.setWebLifecycleState", { state: "active" });
  await ask(leading);
});

test("the lists of all tabs show a session that changes elsewhere at once, without a request", async () => {
  const other = await api.session("demo");
  const others = tabs.slice(0, 5);
  const entry = (page, title) => page.getByRole("listitem").filter({ hasText: title });
  const asked = [];
  const count = (request) => /\/v1\/sessions(\?|$)/.test(request.url()) && request.method() === "GET" && asked.push(request.url());
  for (const { page } of tabs) page.on("request", count);
  for (const title of ["Repair of the roof", "Paint of the door"]) {
    const began = Date.now();
    await api.call("PATCH", `sessions/${other}`, { title });
    await Promise.all(others.map(({ page }) => entry(page, title).waitFor()));
    const took = Date.now() - began;
    assert.ok(took < 1000, `${title}: ${took} ms`);
  }
  await api.call("DELETE", `sessions/${other}`);
  await Promise.all(others.map(({ page }) => entry(page, "Paint of the door").waitFor({ state: "detached" })));
  for (const { page } of tabs) page.off("request", count);
  assert.deepEqual(asked, []);
  await leader();
});

test("all tabs continue after a kill of the gateway", async () => {
  await gateway.kill();
  for (const { page } of tabs.slice(0, 3)) await page.getByRole("button", { name: "Try now" }).waitFor();
  await gateway.restart();
  for (const tab of tabs.slice(0, 8)) await ask(tab);
  await leader();
});

test("a deleted session ends in its tab alone", async () => {
  const [first, second] = tabs;
  await api.call("DELETE", `sessions/${first.session}`);
  await first.page.getByText("This session was deleted.").waitFor();
  await ask(second);
  await close(first);
});

test("a browser without locks uses a stream for each tab", async () => {
  const alone = await Watch.page(browser, gateway.origin);
  await alone.page.addInitScript(() => delete Navigator.prototype.locks);
  const tab = await open(await api.session("mixed"), alone.page);
  await ask(tab);
  tabs.splice(tabs.indexOf(tab), 1);
  await alone.close();
});
