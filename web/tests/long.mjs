// A session with one turn of 50,000 updates: opening it, typing, scrolling, searching, selecting and printing.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";

const UPDATES = 50_000;
const STEPS = UPDATES / 20;
/** The limits of a quiet machine, and the factor that covers a machine with other work. */
const OPEN_MS = 500;
const TASK_MS = 100;
const KEY_MS = 16;
const NODES = 8000;
const NOISE = 3;

const agent = fileURLToPath(new URL("support/mixed_agent.mjs", import.meta.url));
const { page, chat } = await oneChat({
  config: nodeAgent("mixed", agent),
  agent: /mixed/,
  viewport: { width: 1280, height: 800 },
  colorScheme: "light",
  reducedMotion: "reduce",
  allowFailedRequests: true,
});
const turn = () => chat.lastTurn;
const text = (words) => turn().getByText(words, { exact: true });
const nodes = () => page.evaluate(() => document.querySelectorAll("*").length);
const scroller = page.getByRole("region", { name: "Conversation" });
const scroll = (top) => scroller.evaluate((box, to) => box.scrollTo(0, to), top);

/** The first step whose message is there. */
const firstStep = () => page.evaluate(() => Math.min(...[...document.querySelectorAll(".turn:last-of-type .chunk")].flatMap((chunk) => (/Step (\d+): /.exec(chunk.textContent) ?? []).slice(1).map(Number))));

await chat.send(String(UPDATES));
await turn().getByText("Finished").waitFor({ timeout: 120_000 });

test("a session with 50,000 updates in one turn opens at its end without a freeze", async () => {
  const address = page.url();
  await page.addInitScript(() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration);
    }).observe({ type: "longtask", buffered: true });
    // The end of the turn is in the visible area.
    const look = () => {
      const end = document.querySelector(".turn:last-of-type .turn-end");
      const box = end?.getBoundingClientRect();
      if (end?.textContent.startsWith("Finished") && box.bottom < innerHeight) window.opened = performance.now();
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  const times = [];
  for (let round = 0; round < 3; round += 1) {
    await page.goto("about:blank");
    await page.goto(address);
    await page.waitForFunction(() => window.opened > 0, null, { timeout: 60_000 });
    await page.waitForTimeout(500);
    times.push(await page.evaluate(() => ({ opened: Math.round(window.opened), longest: Math.round(window.longest) })));
  }
  const count = await nodes();
  console.log(`opened: ${JSON.stringify(times)}; ${count} nodes`);
  assert.ok(Math.min(...times.map(({ opened }) => opened)) <= OPEN_MS * NOISE, JSON.stringify(times));
  assert.ok(Math.min(...times.map(({ longest }) => longest)) <= TASK_MS * NOISE, JSON.stringify(times));
  assert.ok(count < NODES, `${count} nodes`);
  assert.ok((await firstStep()) > STEPS - 110, "only the last 2,000 updates are read");
  await checkAccessibility(page);
  await screenshot(page, "long-session-light");
});

test("an earlier part that is refused says so, and is read after another try", async () => {
  const events = /\/v1\/sessions\/[^/]+\/events/;
  await page.route(events, (route) => route.fulfill({ status: 403, contentType: "application/json", body: '{"code":"forbidden","title":"Forbidden"}' }));
  const before = await firstStep();
  await scroll(0);
  await page.getByText("Earlier messages could not be loaded.").waitFor();
  assert.equal(await firstStep(), before, "what was read stays");
  await checkAccessibility(page);
  await screenshot(page, "earlier-failed-light");
  await page.unroute(events);
  await page.getByRole("button", { name: "Try again" }).click();
  await page.waitForFunction((step) => !document.querySelector(".turn:last-of-type .chunk").textContent.includes(`Step ${step}: `), before);
  await page.getByRole("button", { name: "Jump to the latest" }).click();
  await turn().getByText("Finished").waitFor();
});

test("the opened session has its end, and earlier parts are added on the way up without a jump", async () => {
  await turn().getByText(String(UPDATES), { exact: true }).first().waitFor({ state: "attached" });
  // The parts in view have their heights before the earlier part arrives.
  const events = /\/v1\/sessions\/[^/]+\/events/;
  await page.route(events, async (route) => {
    await new Promise((done) => setTimeout(done, 500));
    await route.continue();
  });
  const found = [];
  for (let most = 0; (await firstStep()) > 1; most += 1) {
    assert.ok(most < 10, JSON.stringify(found));
    found.push(
      await scroller.evaluate(async (box) => {
        const frame = () => new Promise((done) => requestAnimationFrame(done));
        box.scrollTo(0, 0);
        const { top, bottom } = box.getBoundingClientRect();
        const inView = (element) => element.getBoundingClientRect().top > top && element.getBoundingClientRect().bottom < bottom;
        const steps = () => [...box.querySelectorAll(".message")].filter((element) => element.textContent.startsWith("Step "));
        const began = performance.now();
        const before = box.scrollHeight;
        for (let same = 0, was = 0; (same < 3 || !steps().some(inView)) && performance.now() - began < 10_000; was = box.scrollHeight) {
          await frame();
          same = box.scrollHeight === was ? same + 1 : 0;
        }
        const seen = steps().filter(inView).at(-1);
        const [place, words, height] = [seen.getBoundingClientRect().top, seen.textContent, box.scrollHeight];
        while (box.scrollHeight < height + 5000 && performance.now() - began < 30_000) await frame();
        const took = performance.now() - began;
        for (let wait = 0; wait < 5; wait += 1) await frame();
        const now = steps().find((element) => element.textContent === words);
        return { words: words.slice(0, 12), moved: Math.round(now.getBoundingClientRect().top - place), grew: box.scrollHeight - height, mounting: height - before, took: Math.round(took) };
      }),
    );
  }
  await page.unroute(events);
  console.log(`read on the way up: ${JSON.stringify(found)}`);
  assert.ok(found.length > 1);
  for (const { grew } of found) assert.ok(grew > 5000, JSON.stringify(found));
  for (const { moved } of found) assert.ok(Math.abs(moved) <= 2, JSON.stringify(found));
});

test("a key press does not wait for the long conversation", async () => {
  await chat.message.focus();
  await page.evaluate(() => {
    window.inputs = [];
    let began = 0;
    addEventListener("keydown", () => (began = performance.now()), { capture: true });
    // React has rendered. The reading of a place does the layout.
    addEventListener("input", () => {
      document.body.getBoundingClientRect();
      window.inputs.push(performance.now() - began);
    });
  });
  await page.keyboard.type("fix the failing test", { delay: 20 });
  const times = (await page.evaluate(() => window.inputs)).sort((a, b) => a - b);
  const median = times[Math.floor(times.length / 2)];
  console.log(`key press: median ${median.toFixed(1)} ms, longest ${times.at(-1).toFixed(1)} ms`);
  assert.ok(median <= KEY_MS * NOISE, `${times}`);
  await chat.message.fill("");
});

test("scrolling shows every part, and keeps the number of nodes and the place", async () => {
  const height = await scroller.evaluate((box) => box.scrollHeight);
  let most = 0;
  for (let part = 9; part >= 0; part -= 1) {
    await scroll((height * part) / 10);
    await page.waitForFunction(
      (box) => document.elementFromPoint(innerWidth / 2, box.getBoundingClientRect().top + 300)?.closest(".chunk, .message, .turn"),
      await scroller.elementHandle(),
    );
    most = Math.max(most, await nodes());
  }
  await turn().getByText(/^Step 1: /).waitFor();
  console.log(`scrolled through ${STEPS} steps: at most ${most} nodes`);
  assert.ok(most < NODES, `${most} nodes`);
  await page.getByRole("button", { name: "Jump to the latest" }).click();
  await turn().getByText(new RegExp(`^Step ${STEPS}: `)).waitFor();
  await turn().getByText("Finished").waitFor();
});

test("the browser's search finds parts that are not mounted", async () => {
  const words = "Step 700: ";
  assert.equal(await turn().getByText(words, { exact: false }).and(page.locator(".message *")).count(), 0);
  // What the browser does when its search finds words in such a part.
  await page.evaluate((words) => {
    const place = [...document.querySelectorAll('[hidden="until-found"]')].find((element) => element.textContent.includes(words));
    place.dispatchEvent(new Event("beforematch", { bubbles: true }));
  }, words);
  const found = turn().locator(".message").filter({ hasText: words });
  await found.waitFor();
  await found.scrollIntoViewIfNeeded();
});

test("selected text stays selected when it is scrolled away, and an opened part stays open", async () => {
  const card = turn().locator("details.tool").filter({ hasText: /cargo test part700(?!\d)/ });
  await card.locator("summary").click();
  const message = turn().locator(".message").filter({ hasText: "Step 700: " });
  const selected = await message.evaluate((element) => {
    getSelection().selectAllChildren(element);
    return getSelection().toString();
  });
  await scroll(0);
  await turn().getByText(/^Step 1: /).waitFor();
  assert.equal(await page.evaluate(() => getSelection().toString()), selected);
  assert.ok(selected.includes("Step 700: "), selected);
  await page.evaluate(() => getSelection().removeAllRanges());
  assert.equal(await card.evaluate((details) => details.open), true);
});

test("a print contains all parts", async () => {
  await page.evaluate(() => {
    addEventListener("beforeprint", () => (window.missing = document.querySelectorAll(".turn:last-of-type > .chunk > [hidden]").length), { once: true });
  });
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  assert.equal(await page.evaluate(() => window.missing), 0);
  await page.evaluate(() => dispatchEvent(new Event("afterprint")));
  await page.waitForFunction((limit) => document.querySelectorAll("*").length < limit, NODES);
  await page.emulateMedia({ media: "print" });
  assert.equal(await scroller.evaluate((box) => getComputedStyle(box).overflowY), "visible");
  assert.equal(await page.getByRole("textbox", { name: "Message" }).isVisible(), false);
  await page.emulateMedia({ media: null });
});

test("the keys of search and print read the whole session first", async () => {
  const address = page.url();
  await page.addInitScript(() => {
    window.print = () => (window.printed = document.querySelectorAll(".turn:last-of-type .chunk").length);
  });
  for (const key of ["Control+f", "Control+p"]) {
    await page.goto("about:blank");
    await page.goto(address);
    await turn().getByText("Finished").waitFor();
    assert.ok((await firstStep()) > 1);
    await page.keyboard.press(key);
    await page.waitForFunction(() => [...document.querySelectorAll('[hidden="until-found"]')].some((element) => element.textContent.includes("Step 1: ")));
  }
  await page.waitForFunction(() => window.printed > 100);
});
