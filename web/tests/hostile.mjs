// Hostile texts at every place that the page shows: no script, dialog, request, navigation or element of their own.
//
// Each test follows a session live with the page's policy. A violation of the policy fails the test, because the page
// must not rely on it. A second page without the policy then replays the session from the log.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Api } from "./support/api.mjs";
import { launch, screenshot } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { Gateway } from "./support/gateway.mjs";
import { Guard } from "./support/guard.mjs";
import { assertShown, wordsOf } from "./support/marks.mjs";
import { ADDRESSES, COSTLY, FORM_FIELDS, PAYLOADS, SHORT_PARTS, WELL_FORMED } from "./support/payloads/index.mjs";
import { FRAME_UPDATES, UPDATE_PLACES } from "./support/places.mjs";

const AGENT = fileURLToPath(new URL("support/hostile_agent.mjs", import.meta.url));
/** Places of one session, so that the page stays quick. */
const TURNS = 10;

function config() {
  const command = `command = ${JSON.stringify(process.execPath)}\nargs = ${JSON.stringify([AGENT])}\n`;
  return `[agents.hostile]\n${command}terminals = "gateway"\n\n[agents.asking]\n${command}terminals = "client"\nfiles = "client"\n`;
}

let browser;
let gateway;
let api;
before(async () => {
  browser = await launch();
  gateway = await Gateway.start({ config: config() });
  api = new Api(gateway.link);
});
after(async () => {
  await browser?.close();
  await gateway?.end();
});

/** Opens the session in a page, and waits for its history. */
async function open(session, { bypassCSP = false } = {}) {
  const guard = await Guard.page(browser, gateway.origin, { bypassCSP });
  const { page } = guard;
  await page.goto(gateway.link);
  // Some requests of an agent reach only somebody who follows the session.
  const followed = page.waitForResponse((response) => response.url().includes(`/v1/events?session=${session}`));
  await page.goto(`${gateway.origin}/#/s/${session}`);
  await page.locator(".composer, .closed").first().waitFor();
  await followed;
  return { guard, page, chat: new Chat(page) };
}

/** Loads the session again in a page without the policy. */
async function replayed(session) {
  const opened = await open(session, { bypassCSP: true });
  await new Chat(opened.page).readAll();
  return opened;
}

/** A turn with hundreds of updates takes long on a busy machine. */
const TURN_MS = 60_000;

async function ended(page, count) {
  const isEnded = (turns) => document.querySelectorAll("article.turn-completed, article.turn-failed").length >= turns;
  await page.waitForFunction(isEnded, count, { timeout: TURN_MS });
}

/** Opens everything that is folded, as a person does. */
async function unfold(page) {
  await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
}

const payloadsOf = (place) => (place.costly ? [...PAYLOADS, ...COSTLY] : PAYLOADS);

test("the payloads are 300 or more, and all differ", () => {
  assert.ok(new Set(PAYLOADS).size >= 300);
  assert.equal(new Set(PAYLOADS).size, PAYLOADS.length);
});

test("every kind of update of the protocol has a place for the payloads", async () => {
  const page = await readFile(new URL("../../docs/reference/acp-coverage.md", import.meta.url), "utf8");
  const tables = [...page.matchAll(/^## Updates in v\d\n([\s\S]*?)(?=^## )/gm)].map(([, table]) => table).join("");
  const kinds = new Set([...tables.matchAll(/^\| `([a-z_]+)` \|/gm)].map(([, kind]) => kind));
  const covered = new Set([...UPDATE_PLACES.map((place) => place.update), ...FRAME_UPDATES]);
  assert.ok(kinds.size > 20);
  assert.deepEqual([...kinds].filter((kind) => !covered.has(kind)), []);
});

describe("updates", () => {
  for (let from = 0; from < UPDATE_PLACES.length; from += TURNS) {
    const places = UPDATE_PLACES.slice(from, from + TURNS);
    test(`show every payload as text: ${places[0].name} to ${places.at(-1).name}`, async () => {
      const session = await api.session("hostile");
      const live = await open(session);
      for (const [index, place] of places.entries()) {
        await api.prompt(session, place.name);
        await ended(live.page, index + 1);
        await assertPlace(live.page, place, index);
      }
      const replay = await replayed(session);
      await unfold(replay.page);
      for (const [index, place] of places.entries()) await assertPlace(replay.page, place, index);
      await live.guard.close();
      await replay.guard.close();
    });
  }
});

describe("the frame of a session", () => {
  test("shows every payload as text in modes, settings, commands, titles and names", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    await api.prompt(session, "frame");
    await ended(live.page, 1);
    const replay = await replayed(session);
    for (const { page, chat } of [live, replay]) {
      await page.getByRole("button", { name: "More options" }).click();
      await assertAll(page, [
        ["m1", ".option option", "text"],
        ...["g1", "g3", "g4"].map((place) => [place, ".option option, .option span"]),
        ["s1", "h1.bar-title"],
        ["s1", "title"],
      ]);
      await page.keyboard.press("Escape");
      for (let eight = 0; eight * 8 < PAYLOADS.length; eight += 1) {
        await chat.message.fill(`/${eight}-`);
        const part = PAYLOADS.slice(eight * 8, eight * 8 + 8);
        for (const place of ["c1", "c2"]) await assertShown(page, { place, payloads: part, from: eight * 8, at: ".suggestions" });
      }
      await chat.message.fill("");
    }
    await live.guard.close();
    await replay.guard.close();
  });

  test("shows the names of agents as text", async () => {
    const guard = await Guard.page(browser, gateway.origin, { bypassCSP: true });
    await guard.page.goto(gateway.link);
    await guard.page.getByRole("button", { name: /^Agent:/ }).waitFor();
    await guard.page.getByRole("button", { name: /^Agent:/ }).click();
    await assertAll(guard.page, [["i3", ".agent-version"]]);
    await guard.close();
  });

  test("shows the titles of a client as text", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    for (const { from, payloads, title } of titles()) {
      await api.call("PATCH", `sessions/${session}`, { title }, { "Content-Type": "application/merge-patch+json" });
      for (const at of ["h1.bar-title", ".session-row.current .session-title"]) await assertShown(live.page, { place: "w1", payloads, from, at });
    }
    await live.guard.close();
  });
});

/** Titles of at most 512 characters, with the payloads that a title may contain. */
function titles() {
  const payloads = PAYLOADS.filter((payload) => !/[\p{C}\p{Zl}\p{Zp}]/u.test(payload) && payload.length < 400);
  const found = [];
  payloads.forEach((payload, index) => {
    const words = wordsOf("w1", index, payload).replaceAll("\n", " ");
    const last = found.at(-1);
    if (last && last.title.length + words.length < 500) {
      last.title += ` ${words}`;
      last.payloads.push(payload);
    } else found.push({ from: index, payloads: [payload], title: words });
  });
  assert.ok(payloads.length >= 300);
  return found;
}

describe("requests of an agent", () => {
  test("a permission shows every payload as text, and so does its answer", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    await api.prompt(session, "permission");
    const request = await api.request(session);
    const replay = await replayed(session);
    for (const { page } of [live, replay]) {
      await assertAll(page, [
        ["p1", ".permission-content .markdown", "markdown"],
        ["p2", ".permission-options .option-name"],
        ["p3", ".permission-title"],
        ["p4", ".permission-text"],
        ["p5", ".tool-title"],
        ["p7", ".permission .action-row code"],
        ["p8", ".permission .action > pre"],
        ["p9", ".permission .action-row code"],
      ]);
    }
    await api.answer(session, request, "permissions", { optionId: "all" });
    for (const { page } of [live, replay]) await assertAll(page, [["pa", ".request-line"], ["p3", ".request-line-title"]]);
    await live.guard.close();
    await replay.guard.close();
  });

  test("a form shows every payload as text", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    await api.prompt(session, "forms");
    let request = null;
    for (let from = 0; from < PAYLOADS.length; from += FORM_FIELDS) {
      request = await api.request(session, request);
      const replay = from === 0 ? await replayed(session) : null;
      for (const { page, chat } of [live, ...(replay ? [replay] : [])]) {
        await chat.question.waitFor();
        const payloads = WELL_FORMED.slice(from, from + FORM_FIELDS);
        const options = ["f1", "f9"].map((place) => [place, ".question option"]);
        const names = ["f2", "f5"].map((place) => [place, ".field-name"]);
        for (const [place, at] of [...options, ...names, ["f3", ".field-about"], ["f4", ".question textarea"], ["f8", ".choices"]]) {
          await assertShown(page, { place, payloads, from, at });
        }
        await assertAll(page, [["fa", ".permission-title"]]);
        if (from === FORM_FIELDS) await assertAll(page, [["f6", ".form-title"], ["f7", ".permission-text"]]);
      }
      await screenshot(live.page, "hostile-form-light");
      await replay?.guard.close();
      await api.answer(session, request, "elicitations", { action: "decline" });
      await live.page.waitForFunction((count) => document.querySelectorAll(".request-line").length === count, from / FORM_FIELDS + 1);
    }
    await ended(live.page, 1);
    await live.guard.close();
  });

  test("a page to open shows its host and its address as text", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    const { page, chat } = live;
    await api.prompt(session, "link");
    await chat.question.getByRole("link").waitFor();
    assert.equal(await chat.question.locator(".link-host").textContent(), "ok.example");
    await chat.question.getByText("no part of the host").waitFor();
    await assertAll(page, [["l1", ".permission-title"]]);
    const href = await chat.question.getByRole("link").getAttribute("href");
    const shown = await chat.question.locator(".link-whole").textContent();
    assert.equal(shown, href);
    await api.answer(session, await api.request(session), "elicitations", { action: "decline" });
    await ended(page, 1);
    await live.guard.close();
  });

  test("an address that no browser may open is not a link", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    const { page } = live;
    const turn = await api.prompt(session, "links");
    let before = null;
    let seen = 0;
    for (;;) {
      const request = await api.request(session, before, turn);
      if (request === null) break;
      before = request;
      seen += 1;
      await page.waitForFunction((count) => document.querySelectorAll(".request-line").length === count && document.querySelector(".question .link, .question .warn"), seen - 1);
      const hrefs = await page.locator(".question a").evaluateAll((all) => all.map((link) => link.href));
      for (const href of hrefs) assert.match(href, /^https?:\/\/[^/]/);
      await api.answer(session, request, "elicitations", { action: "decline" });
      await page.waitForFunction((count) => document.querySelectorAll(".request-line").length === count, seen);
    }
    assert.ok(seen > 0 && seen <= ADDRESSES.length);
    await live.guard.close();
  });

  test("the end of a page that a person opened shows no payload", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    await api.prompt(session, "completed");
    await live.chat.question.getByRole("link").waitFor();
    await api.answer(session, await api.request(session), "elicitations", { action: "accept" });
    await ended(live.page, 1);
    const { events } = await api.call("GET", `sessions/${session}/events?types=elicitation.completed`);
    assert.equal(events.length, 1);
    assert.equal(events[0].elicitationId, wordsOf("e2", 0, PAYLOADS[0]));
    assert.equal(events[0].more.words.length, PAYLOADS.length);
    const replay = await replayed(session);
    for (const { page } of [live, replay]) {
      const text = await page.evaluate(() => document.body.textContent);
      for (const place of ["e2", "e3", "e4"]) assert.ok(!text.includes(`zq${place}`), place);
    }
    await live.guard.close();
    await replay.guard.close();
  });

  for (const [step, places] of Object.entries({ other: ["o1", "o2", "o3"], file: ["o4", "o5"], command: ["o6", "o7"] })) {
    test(`a request without a form of its own shows every payload as text: ${step}`, async () => {
      const session = await api.session("asking");
      const live = await open(session);
      await api.prompt(session, step);
      await live.chat.question.waitFor();
      const request = await api.request(session);
      for (const place of places) {
        const shown = place === "o1" ? { at: ".question .permission-note" } : { at: ".question pre", as: "json" };
        await assertShown(live.page, { place, payloads: ["o1", "o3"].includes(place) ? WELL_FORMED : PAYLOADS, ...shown });
      }
      await api.answer(session, request, "requests", { error: { code: -32603, message: "no" } });
      await ended(live.page, 1);
      await live.guard.close();
    });
  }
});

describe("turns", () => {
  test("show every payload of a prompt, running or queued, as text", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    const texts = PAYLOADS.filter((payload) => payload.isWellFormed());
    const prompt = (place) => texts.map((payload, index) => wordsOf(place, index, payload));
    await api.prompt(session, "permission", ...prompt("u1"));
    const queued = await api.prompt(session, "later");
    await live.page.locator(".queued").waitFor();
    const changed = ["stop", ...prompt("u2")].map((text) => ({ type: "text", text }));
    await api.call("PATCH", `sessions/${session}/prompts/${queued}`, { prompt: changed });
    await assertShown(live.page, { place: "u1", payloads: texts, at: ".turn > .from-person" });
    await assertShown(live.page, { place: "u2", payloads: texts, at: ".queue-words" });
    await api.answer(session, await api.request(session), "permissions", { cancelled: true });
    await ended(live.page, 2);
    const replay = await replayed(session);
    for (const { page } of [live, replay]) {
      for (const place of ["u1", "u2"]) await assertShown(page, { place, payloads: texts, at: ".turn > .from-person" });
      await assertShown(page, { place: "r1", payloads: WELL_FORMED, at: ".turn-end" });
      await page.waitForFunction(() => document.querySelector("article:last-of-type .turn-end"));
    }
    await live.guard.close();
    await replay.guard.close();
  });

  test("show every payload of an error as text", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    await api.prompt(session, "fail");
    await ended(live.page, 1);
    const replay = await replayed(session);
    for (const { page } of [live, replay]) await assertAll(page, [["r2", ".problem-detail", "markdown"], ["r3", ".problem details pre", "json"]]);
    await live.guard.close();
    await replay.guard.close();
  });

  test("show the error output of a dead agent as text", async () => {
    const [failed, later] = [await api.session("hostile"), await api.session("hostile")];
    for (const [session, step, place, at] of [[failed, "die", "r4", ".problem pre"], [later, "dieLater", "r5", ".note-detail"]]) {
      const live = await open(session);
      await api.prompt(session, step);
      await live.page.locator(at).waitFor({ state: "attached" });
      const replay = await replayed(session);
      for (const { page } of [live, replay]) await assertShown(page, { place, payloads: WELL_FORMED, at });
      await live.guard.close();
      await replay.guard.close();
    }
  });

  test("show the error of an agent that lost a session as text", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    // The gateway truncates a long error, so each process reports another part of the payloads.
    for (let part = 0; part < SHORT_PARTS.length; part += 1) {
      await api.prompt(session, "exitLater");
      await ended(live.page, part + 1);
      await live.page.waitForFunction((count) => document.querySelectorAll(".note").length >= count, 2 * part + 1);
    }
    await api.prompt(session, "stop");
    await ended(live.page, SHORT_PARTS.length + 1);
    const replay = await replayed(session);
    for (const { page } of [live, replay]) {
      // The gateway removes control sequences from an error, so these payloads differ from their text.
      const texts = WELL_FORMED.map((payload) => (/\p{C}/u.test(payload) ? null : payload));
      await assertShown(page, { place: "r6", payloads: texts, at: ".note-detail" });
      await assertShown(page, { place: "r6", payloads: WELL_FORMED, at: ".note-detail", as: "output" });
    }
    await live.guard.close();
    await replay.guard.close();
  });

  test("show the name of a privileged mode as text", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    await api.prompt(session, "privileged");
    await ended(live.page, 1);
    const replay = await replayed(session);
    for (const { page } of [live, replay]) await assertShown(page, { place: "v1", payloads: WELL_FORMED, at: ".note-warning" });
    await live.guard.close();
    await replay.guard.close();
  });

  test("show the command and the output of a terminal as text", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    await api.prompt(session, "output");
    await ended(live.page, 1);
    const replay = await replayed(session);
    const args = PAYLOADS.map((payload) => (payload.includes("\0") || !payload.isWellFormed() ? null : payload));
    for (const { page } of [live, replay]) {
      await page.locator(".terminal-more button").waitFor();
      await showWhole(page);
      await assertShown(page, { place: "t1", payloads: args, at: ".terminal figcaption code", as: "output" });
      await assertShown(page, { place: "t1", payloads: args, at: ".terminal pre", as: "output" });
    }
    await live.guard.close();
    await replay.guard.close();
  });

  test("ignore payloads in extensions and in lines that are not JSON-RPC", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    await api.prompt(session, "extension");
    await ended(live.page, 1);
    await api.prompt(session, "invalid");
    await ended(live.page, 2);
    const { events } = await api.call("GET", `sessions/${session}/events?types=extension,agent.invalid_output&limit=1000`);
    assert.equal(events.filter(({ type }) => type === "extension").length, PAYLOADS.length);
    assert.ok(events.some(({ type }) => type === "agent.invalid_output"));
    await live.guard.close();
  });

  test("survive values of a wrong type and names that every object has", async () => {
    const session = await api.session("hostile");
    const live = await open(session);
    await api.prompt(session, "wrong");
    await ended(live.page, 1);
    const replay = await replayed(session);
    for (const { page, chat } of [live, replay]) {
      await ended(page, 1);
      await unfold(page);
      await chat.message.fill("/wr");
      await page.locator(".suggestions").waitFor();
      assert.equal(await page.getByText("This part cannot be shown").count(), 0);
    }
    await live.guard.close();
    await replay.guard.close();
  });
});

/**
 * The type that no session of these tests has. `session.deleted` is the last event of a session, and contains only the
 * name of a key. The page leaves the session at this event and shows no name. Every other type passes through a page
 * above. Types without a text of an agent or client (`session.detached`, `session.closed`, `terminal.exited`,
 * `agent.invalid_output`) contain only numbers, fixed words, ids of the gateway and names of keys.
 */
const WITHOUT_TEXT = ["session.deleted"];

test("every type of event passed through a page", async () => {
  const session = await api.session("hostile");
  const live = await open(session);
  await api.call("POST", `sessions/${session}/close`);
  await live.page.locator(".closed").waitFor();
  await live.guard.close();
  const table = await readFile(new URL("../../crates/events/src/event/table.rs", import.meta.url), "utf8");
  const logged = [...table.matchAll(/= "([a-z_.]+)" \{ logged: true/g)].map(([, type]) => type);
  assert.ok(logged.length >= 20);
  const seen = new Set(WITHOUT_TEXT);
  const { sessions } = await api.call("GET", "sessions?limit=200");
  for (const { sessionId } of sessions) {
    for (const type of logged.filter((type) => !seen.has(type))) {
      const { events } = await api.call("GET", `sessions/${sessionId}/events?types=${type}&limit=1`);
      if (events.length > 0) seen.add(type);
    }
  }
  assert.deepEqual(logged.filter((type) => !seen.has(type)), []);
});

async function assertPlace(page, place, index) {
  if (place.at === null) return;
  const root = `.transcript-content > article:nth-of-type(${index + 1})`;
  if (place.as === "output") await showWhole(page);
  await assertShown(page, { place: place.mark, payloads: payloadsOf(place), root, at: place.at, as: place.as });
}

/** A long output shows its end until a person asks for all of it. */
async function showWhole(page) {
  await page.evaluate(() => document.querySelectorAll(".terminal-more button").forEach((button) => button.click()));
}

/** `shown` is a list of [place, selector, way]. */
async function assertAll(page, shown) {
  for (const [place, at, as] of shown) await assertShown(page, { place, payloads: PAYLOADS, at, as });
}
