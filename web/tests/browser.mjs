// The page in a real browser, against the real gateway and its demo agent.
//
// ACP_GATEWAY_BIN          the gateway's binary
// ACP_GATEWAY_SCREENSHOTS  a folder for pictures; none are made without it
// CHROMIUM                 the browser, /usr/bin/chromium by default

import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { checkAccessibility, launch, screenshot, Watch } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { Gateway } from "./support/gateway.mjs";

const DEMO = /demo/i;
const BUDGET_BYTES = 180 * 1024;
/** Without formulas. */
const LATER_BYTES = 60 * 1024;
const MATHS_BYTES = 84 * 1024;

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

test("the built page keeps its budget and has nothing inline", async () => {
  const dist = new URL("../dist/", import.meta.url);
  const html = await readFile(new URL("index.html", dist), "utf8");
  assert.doesNotMatch(html, /<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|(?:src|href)="(?!\.\/)/);
  const assets = await readdir(new URL("assets/", dist));
  const files = await Promise.all(assets.map(async (name) => ({ name, bytes: await readFile(new URL(`assets/${name}`, dist)) })));
  // Parts that are loaded when they are needed are named by no page, and import from the scripts that are there already.
  const first = files.filter((file) => html.includes(file.name));
  const later = files.filter((file) => !html.includes(file.name));
  // The build may divide the script into parts that it loads together.
  assert.deepEqual(first.map((file) => file.name.replace(/-.{8}\./, ".")).filter((name) => name.startsWith("index")).sort(), ["index.css", "index.js"]);
  const script = first.find((file) => file.name.startsWith("index") && file.name.endsWith(".js")).bytes.toString("utf8");
  const imported = [...script.slice(0, 2000).matchAll(/(?:^|[;\n])import[^;]*?"([^"]+)"/g)].map((match) => match[1]);
  assert.deepEqual(imported.filter((name) => !html.includes(name.replace("./", "./assets/"))), []);
  const size = (of) => of.reduce((sum, bytes) => sum + gzipSync(bytes, { level: 9 }).length, 0);
  const firstLoad = size([Buffer.from(html), ...first.map((file) => file.bytes)]);
  assert.ok(firstLoad <= BUDGET_BYTES, `${firstLoad} bytes gzipped on first load`);
  const isMaths = (file) => file.name.startsWith("maths-");
  const maths = size(later.filter(isMaths).map((file) => file.bytes));
  assert.ok(maths > 0 && maths <= MATHS_BYTES, `${maths} bytes gzipped for formulas`);
  const rest = size(later.filter((file) => !isMaths(file)).map((file) => file.bytes));
  assert.ok(rest <= LATER_BYTES, `${rest} bytes gzipped later`);
});

describe("with the demo agent", () => {
  let gateway;
  before(async () => {
    gateway = await Gateway.start();
  });
  after(() => gateway?.end());

  async function open(options) {
    const watch = await Watch.page(browser, gateway.origin, options);
    await watch.page.goto(gateway.link);
    return { watch, page: watch.page, chat: new Chat(watch.page) };
  }

  test("the link opens the page, and the key leaves the address", async () => {
    const { watch, page } = await open({ colorScheme: "light" });
    await page.getByRole("button", { name: /^Agent:/ }).waitFor();
    const policy = (await page.request.get(`${gateway.origin}/`)).headers()["content-security-policy"];
    assert.match(policy, /^default-src 'none';.* require-trusted-types-for 'script'; trusted-types dompurify worker; frame-ancestors 'none'$/);
    // A worker imports scripts of the page under the policy of its own script. Chromium permits this without a policy, Firefox does not.
    const script = await page.request.get(new URL(await page.locator("script[src]").first().getAttribute("src"), `${gateway.origin}/`).href);
    assert.equal(script.headers()["content-security-policy"], "default-src 'none'; script-src 'self'; frame-ancestors 'none'");
    assert.equal(page.url(), `${gateway.origin}/#/`);
    const manifest = await page.request.get(new URL(await page.locator("link[rel=manifest]").getAttribute("href"), `${gateway.origin}/`).href);
    assert.equal(manifest.headers()["content-type"], "application/manifest+json");
    assert.equal((await manifest.json()).start_url, "./");
    await page.getByText("Signed in as owner").click();
    const rights = page.getByRole("group", { name: "Rights of the key" }).getByRole("listitem");
    assert.deepEqual(await rights.allTextContents(), ["Read sessions", "Send messages", "Answer requests of agents", "Read and change files", "Manage the gateway"]);
    const key = new URLSearchParams(new URL(gateway.link).hash.slice(1)).get("key");
    assert.deepEqual(await page.evaluate(() => [Object.keys(localStorage), document.cookie]), [[], ""]);
    assert.equal((await page.content()).includes(key), false);
    await checkAccessibility(page);
    await screenshot(page, "start-light");
    await watch.close();
  });

  test("the first load transfers at most 200 kB", async () => {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(gateway.link);
    await page.getByRole("button", { name: /^Agent:/ }).waitFor();
    const entries = await page.evaluate(() => [
      ...performance.getEntriesByType("navigation"),
      ...performance.getEntriesByType("resource").filter(({ name }) => !name.includes("/v1")),
    ].map(({ name, transferSize, encodedBodySize, decodedBodySize }) => ({ name, transferSize, encodedBodySize, decodedBodySize })));
    const bytes = entries.reduce((sum, { transferSize }) => sum + transferSize, 0);
    console.log(`first load: ${bytes} bytes in ${entries.length} requests`);
    assert.ok(bytes > 50_000 && bytes <= 200_000, `${bytes} bytes`);
    const script = entries.find(({ name }) => /index-.*\.js$/.test(name));
    assert.ok(script.encodedBodySize < script.decodedBodySize / 3, "the script is compressed");
    await context.close();
  });

  test("a prompt is answered while one watches, and all of it is there after a reload", async () => {
    const { watch, page, chat } = await open();
    await chat.start(DEMO);
    // A busy test process would see the end of the answer only, so the page records what it shows and when.
    await page.getByRole("log").evaluate((log) => {
      globalThis.shown = [];
      new MutationObserver(() => {
        const answer = [...log.querySelectorAll(".from-agent")].at(-1)?.textContent.length ?? 0;
        globalThis.shown.push([answer, log.getAttribute("aria-busy"), log.querySelector(".working") !== null]);
      }).observe(log, { attributes: true, characterData: true, childList: true, subtree: true });
    });
    await chat.send("Hello, what can you do?");
    await chat.ended("Finished");
    const shown = await page.evaluate(() => globalThis.shown);
    const lengths = new Set(shown.filter(([length, busy]) => length > 0 && busy === "true").map(([length]) => length));
    assert.ok(lengths.size > 1, `the answer grows while the log is busy: ${[...lengths]}`);
    assert.ok(shown.some(([, busy, working]) => busy === "true" && working), "the turn shows that the agent works");
    assert.equal(await page.getByRole("log").getAttribute("aria-busy"), "false");
    await page.locator("[aria-live=polite]").filter({ hasText: "Finished" }).waitFor({ state: "attached" });
    assert.equal(await chat.turns.count(), 1);

    const before = await chat.transcript();
    await page.reload();
    await chat.ended("Finished");
    await chat.sameAs(before);
    await checkAccessibility(page);
    await screenshot(page, "answer-light");
    await watch.close();
  });

  test("a link replaces another key only after a question", async () => {
    const { watch, page } = await open({ colorScheme: "light" });
    const start = page.getByRole("heading", { name: "What should we work on?" });
    await start.waitFor();
    const own = new URLSearchParams(new URL(gateway.link).hash.slice(1)).get("key");
    const other = new URLSearchParams(new URL(await gateway.adminLink()).hash.slice(1)).get("key");
    const stored = () => page.evaluate(() => sessionStorage.getItem("acp-gateway.key"));
    const dialog = page.getByRole("dialog", { name: "Use the key of this link?" });
    const follow = (key) => page.evaluate((to) => location.assign(to), `#key=${key}`);

    await follow(own);
    await page.waitForURL(`${gateway.origin}/#/`);
    assert.equal(await dialog.count(), 0, "the same key is no question");

    await follow(other);
    await dialog.waitFor();
    assert.equal(page.url(), `${gateway.origin}/#/`);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Keep my key");
    await checkAccessibility(page);
    await screenshot(page, "replace-key-light");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    assert.equal(await stored(), own);

    // A link that loads the page asks too.
    await page.goto("about:blank");
    await page.goto(`${gateway.origin}/#key=${other}`);
    await dialog.waitFor();
    await page.keyboard.press("Enter");
    await dialog.waitFor({ state: "detached" });
    assert.equal(await stored(), own);

    await follow(other);
    await dialog.waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await dialog.waitFor({ state: "detached" });
    assert.equal(await stored(), other);
    await start.waitFor();
    await watch.close();
  });

  test("a permission is answered by a key after a move to it; another tab sees by whom", async () => {
    const { watch, page, chat } = await open({ colorScheme: "dark" });
    await chat.start(DEMO);
    const other = await watch.newPage();
    await other.goto(gateway.link);
    await other.goto(page.url());
    const otherChat = new Chat(other);
    await otherChat.message.waitFor();
    await page.bringToFront();

    await chat.send("/permission");
    await chat.permission.waitFor();
    assert.equal(await chat.message.evaluate((field) => field === document.activeElement), true);
    await otherChat.permission.waitFor();
    // The agent names its session when the turn ends; until then the list has the title that the session shows.
    await page.locator(".session-row.current .session-title").filter({ hasText: "/permission" }).waitFor();
    await checkAccessibility(page);
    await screenshot(page, "permission-dark");
    await chat.permission.getByText(/^Rejected at .* if nobody answers$/).waitFor();
    const options = chat.permission.getByRole("button");
    assert.ok((await options.count()) >= 2);
    const name = await options.first().locator(".option-name").textContent();
    await page.locator('.permission button[aria-disabled="false"]').first().waitFor();
    await page.keyboard.press("Shift+Tab");
    // It deletes, so a second press confirms it.
    await page.keyboard.press("1");
    await page.getByRole("status").filter({ hasText: "Press 1 again" }).waitFor();
    await page.waitForTimeout(350);
    await page.keyboard.press("1");
    await chat.lastTurn.locator(".request-line").filter({ hasText: `“${name}” chosen by` }).waitFor();
    await otherChat.lastTurn.locator(".request-line").filter({ hasText: `“${name}” chosen by` }).waitFor();
    assert.equal(await otherChat.permission.count(), 0);
    await other.getByRole("status").filter({ hasText: `“${name}” chosen by` }).waitFor();
    assert.equal(await page.locator(".elsewhere").count(), 0, "the page that answered shows no note");
    await checkAccessibility(other);
    await screenshot(other, "answered-elsewhere-dark");
    await other.getByRole("status").getByRole("button", { name: "Dismiss" }).click();
    await other.locator(".elsewhere").waitFor({ state: "detached" });
    await chat.ended("Finished");

    // The focus stays in the message field, also if an agent asks at once.
    await chat.set("Pace", "instant");
    await chat.send("/permission");
    await page.locator('.permission button[aria-disabled="false"]').first().waitFor();
    assert.equal(await chat.message.evaluate((field) => field === document.activeElement), true);
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("3");
    await chat.ended("Finished");
    await watch.close();
  });

  test("Escape stops the agent, and what it had asked is answered with it", async () => {
    const { watch, page, chat } = await open();
    await chat.start(DEMO);
    await chat.send("/slow 120");
    await page.getByRole("button", { name: "Stop" }).waitFor();
    await chat.message.press("Escape");
    await chat.ended("Stopped");
    await chat.send("/permission");
    await chat.permission.waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    await chat.ended("Stopped");
    assert.equal(await chat.permission.count(), 0);
    await chat.lastTurn.locator(".request-line").filter({ hasText: "cancelled" }).waitFor();
    await watch.close();
  });

  test("a running turn shows how long it has been running", async () => {
    const { watch, page, chat } = await open();
    await page.clock.install();
    await chat.start(DEMO);
    await chat.send("/slow 120");
    await page.clock.fastForward("01:10");
    await chat.lastTurn.locator(".working .elapsed").filter({ hasText: /^1 min \d+ s$/ }).waitFor();
    await page.keyboard.press("Escape");
    await chat.ended("Stopped");
    await watch.close();
  });

  test("a message sent during a turn waits in the queue", async () => {
    const { watch, page, chat } = await open();
    await chat.start(DEMO);
    await chat.send("/slow 120");
    await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
    await chat.send("/help");
    await chat.queued.filter({ hasText: "/help" }).waitFor();
    await page.keyboard.press("Escape");
    await chat.ended("Stopped");
    await chat.queued.waitFor({ state: "detached" });
    await watch.close();
  });

  test("modes and options are chosen and stay chosen", async () => {
    const { watch, page, chat } = await open();
    await chat.start(DEMO);
    await page.getByLabel("Mode").selectOption("auto");
    const options = () => page.getByRole("button", { name: "More options" }).click();
    await options();
    await page.getByLabel("Pace").selectOption("instant");
    const chosen = () => page.locator(".option select").evaluateAll((all) => all.map((one) => one.value));
    await page.waitForFunction(() => [...document.querySelectorAll(".option select")].some((one) => one.value === "instant"));
    await page.waitForFunction(() => [...document.querySelectorAll(".option select")].some((one) => one.value === "auto"));
    const before = await chosen();
    await page.reload();
    await options();
    await page.getByLabel("Pace").waitFor();
    await page.waitForFunction(() => [...document.querySelectorAll(".option select")].some((one) => one.value === "instant"));
    assert.deepEqual(await chosen(), before);
    await chat.send("/tour");
    await chat.lastTurn.locator(".turn-end").filter({ hasText: "Finished" }).waitFor();
    await checkAccessibility(page);
    await screenshot(page, "tour-light");
    await page.emulateMedia({ colorScheme: "dark" });
    await checkAccessibility(page);
    await screenshot(page, "tour-dark");
    await page.setViewportSize({ width: 1280, height: 2200 });
    await screenshot(page, "tour-whole-dark");
    await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
    await screenshot(page, "tour-whole-light");
    await page.setViewportSize({ width: 390, height: 800 });
    await screenshot(page, "tour-small");
    await page.getByRole("button", { name: "Open the list of sessions" }).click();
    await page.getByRole("link", { name: "New session" }).waitFor();
    await checkAccessibility(page);
    await screenshot(page, "list-small");
    await watch.close();
  });

  test("a session is deleted from the list after a second thought", async () => {
    const { watch, page, chat } = await open();
    await chat.start(DEMO);
    const row = page.locator(".session-row.current");
    await row.waitFor();
    await row.hover();
    await row.getByRole("button", { name: /^Delete/ }).click();
    await page.getByRole("button", { name: "Keep" }).click();
    await row.hover();
    await row.getByRole("button", { name: /^Delete/ }).click();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByRole("heading", { name: "What should we work on?" }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll(".session-row.current").length === 0);
    await watch.close();
  });

  test("a killed gateway comes back, and the interrupted turn is there exactly once", async () => {
    const { watch, page, chat } = await open({ allowFailedRequests: true });
    await chat.start(DEMO);
    await chat.send("/help");
    await chat.ended("Finished");
    await chat.send("/slow 300");
    await chat.lastTurn.locator(".from-agent, .thought, .tool").first().waitFor();
    await gateway.kill();
    await page.locator(".banner").waitFor();
    await screenshot(page, "lost-light");
    assert.equal(await chat.turns.count(), 2);
    await gateway.restart();
    await page.getByRole("button", { name: "Try now" }).click({ timeout: 2000 }).catch(() => undefined);
    await chat.lastTurn.locator(".problem").waitFor();
    await page.locator(".banner").waitFor({ state: "detached" });
    assert.equal(await chat.turns.count(), 2);
    assert.equal(await page.locator(".turn .problem").count(), 1);
    await screenshot(page, "interrupted-light");
    const shown = await chat.transcript();
    await page.reload();
    await chat.sameAs(shown);

    await chat.lastTurn.getByRole("button", { name: "Write it again" }).click();
    assert.equal(await chat.message.inputValue(), "/slow 300");
    await page.reload();
    assert.equal(await chat.message.inputValue(), "/slow 300");
    await chat.send("/help");
    await chat.lastTurn.locator(".turn-end").filter({ hasText: "Finished" }).waitFor();
    assert.equal(await chat.turns.count(), 3);
    await watch.close();
  });

  test("a wrong key is refused in words, and the right one lets in", async () => {
    const watch = await Watch.page(browser, gateway.origin, { allowFailedRequests: true });
    const { page } = watch;
    await page.goto(`${gateway.origin}/#key=wrong`);
    await page.getByText("The gateway refused this key.").waitFor();
    await checkAccessibility(page);
    await screenshot(page, "refused-light");
    await page.getByLabel("Key or link").fill(gateway.link);
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByRole("heading", { name: "What should we work on?" }).waitFor();
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Key or link").waitFor();
    assert.deepEqual(await page.evaluate(() => [localStorage.length, sessionStorage.length]), [0, 0]);
    await page.goto(`${gateway.origin}/#/s/00000000-0000-7000-8000-000000000000`);
    await page.getByLabel("Key or link").fill(gateway.link);
    await page.getByRole("button", { name: "Continue" }).click();
    await page.locator(".closed .problem").waitFor();
    await watch.close();
  });
});
