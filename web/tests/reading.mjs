// What a person reads: activities, highlighted code, changes to files, coloured output and formulas.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";

const agent = fileURLToPath(new URL("support/reading_agent.mjs", import.meta.url));
const { page, chat } = await oneChat({ config: nodeAgent("reading", agent), agent: /reading/, viewport: { width: 1280, height: 900 } });
await chat.send("work");
await chat.ended("Finished");

const colour = (element) => element.evaluate((found) => getComputedStyle(found).color);

test("completed calls are one line that opens to them, and a failed call is a card", async () => {
  const line = chat.lastTurn.getByRole("button", { name: "Read 2 files, searched one time" });
  assert.equal(await line.getAttribute("aria-expanded"), "false");
  assert.equal(await page.getByText("Read src/parser.rs").isVisible(), false);
  assert.equal(await page.getByText("Read src/missing.rs").isVisible(), true);
  await screenshot(page, "activity-light");
  await line.press("Enter");
  assert.equal(await line.getAttribute("aria-expanded"), "true");
  await page.getByText("Read src/parser.rs").click();
  await page.getByText("/w/src/parser.rs").waitFor();
  await checkAccessibility(page);
  await line.click();
  assert.equal(await page.getByText("Read src/parser.rs").isVisible(), false);
});

test("the browser's search opens a closed line", async () => {
  await page.locator(".activity-calls[hidden]").evaluate((calls) => calls.dispatchEvent(new Event("beforematch")));
  await page.getByText("Search for limit").waitFor();
  await chat.lastTurn.getByRole("button", { name: "Read 2 files, searched one time" }).click();
});

test("code is highlighted, in both themes", async () => {
  const block = page.getByRole("group", { name: "Code, rust" });
  const keyword = block.locator(".code-keyword").first();
  await keyword.waitFor();
  assert.equal(await keyword.textContent(), "fn");
  assert.equal(await block.locator(".code-comment").textContent(), "/// The limit.");
  assert.equal(await block.locator("code").textContent(), "/// The limit.\nfn limit() -> u64 {\n    20\n}");
  const light = await colour(keyword);
  await page.emulateMedia({ colorScheme: "dark" });
  assert.notEqual(await colour(keyword), light);
  await checkAccessibility(page);
  await screenshot(page, "reading-dark");
  await page.emulateMedia({ colorScheme: "light" });
});

test("a diff marks the changed words, and shows both sides next to each other", async () => {
  const diff = page.locator(".diff");
  assert.deepEqual(await diff.locator(".diff-word").allTextContents(), ["20", "30"]);
  const button = diff.getByRole("button", { name: "Side by side" });
  await button.press("Enter");
  assert.equal(await button.getAttribute("aria-pressed"), "true");
  const rows = await diff.locator(".diff-row").evaluateAll((all) => all.map((row) => [...row.children].map((side) => side.querySelector(".diff-text")?.textContent ?? null)));
  assert.deepEqual(rows, [
    ["fn main() {", "fn main() {"],
    ["    let limit = 20;", "    let limit = 30;"],
    [null, '    let path = "a";'],
    ["    run(limit);", "    run(limit);"],
    ["}", "}"],
  ]);
  await checkAccessibility(page);
  await screenshot(page, "diff-split-light");
  await page.reload();
  await page.locator(".diff-split").waitFor();
  await page.setViewportSize({ width: 390, height: 800 });
  await page.locator(".diff-split").waitFor({ state: "detached" });
  await screenshot(page, "diff-phone");
  await page.setViewportSize({ width: 1280, height: 900 });
  await diff.getByRole("button", { name: "Side by side" }).click();
  await page.locator(".diff-split").waitFor({ state: "detached" });
});

test("the output of a command has its colours, and is copied as text", async () => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const terminal = page.locator(".terminal");
  assert.equal(await terminal.locator("pre").textContent(), "   Compiling parser v0.1.0\nerror: expected `;`\n PASS  3 tests");
  assert.deepEqual(
    await terminal.locator("pre span").evaluateAll((all) => all.map((span) => [span.textContent, span.className])),
    [
      ["   Compiling", "ansi-bold ansi-green"],
      ["error", "ansi-red"],
      [" PASS ", "ansi-on-green"],
    ],
  );
  assert.notEqual(await colour(terminal.locator(".ansi-red")), await colour(terminal.locator("pre")));
  // The word stays for two seconds.
  await Promise.all([terminal.getByText("Copied").waitFor(), terminal.getByRole("button", { name: "Copy" }).click()]);
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "   Compiling parser v0.1.0\nerror: expected `;`\n PASS  3 tests");
});

test("content that grows before the event of a scroll leaves the conversation at its end", async () => {
  const scroller = page.getByRole("region", { name: "Conversation" });
  const distance = () => scroller.evaluate((box) => box.scrollHeight - box.scrollTop - box.clientHeight);
  await scroller.evaluate((box) => box.scrollTo(0, box.scrollHeight));
  await page.getByRole("button", { name: "Jump to the latest" }).waitFor({ state: "detached" });
  await scroller.evaluate(async (box) => {
    const log = box.querySelector("[role=log]");
    log.style.minHeight = `${log.offsetHeight + 600}px`;
    box.dispatchEvent(new Event("scroll"));
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  });
  assert.ok((await distance()) < 80, `${await distance()}`);
  await scroller.evaluate((box) => box.scrollBy(0, -300));
  await page.getByRole("button", { name: "Jump to the latest" }).waitFor();
  await scroller.evaluate((box) => {
    const log = box.querySelector("[role=log]");
    log.style.minHeight = `${log.offsetHeight + 300}px`;
  });
  assert.ok((await distance()) > 300, "a reader who scrolled up stays there");
  await page.getByRole("button", { name: "Jump to the latest" }).click();
  assert.ok((await distance()) < 80);
  await scroller.evaluate((box) => (box.querySelector("[role=log]").style.minHeight = ""));
});

test("calls of a running turn stay visible until it ends", async () => {
  await chat.send("hang");
  const calls = chat.lastTurn.locator(".tool-title");
  await calls.nth(1).waitFor();
  assert.equal(await calls.nth(0).isVisible(), true);
  assert.equal(await chat.lastTurn.locator(".activity-head").count(), 0);
  await page.getByRole("button", { name: "Stop" }).click();
  await chat.ended("Stopped");
  await chat.lastTurn.getByRole("button", { name: "Read 2 files" }).waitFor();
  assert.equal(await calls.nth(0).isVisible(), false);
});

test("code that takes minutes to highlight stays plain, and blocks neither the page nor the next code", async () => {
  await chat.send("slow");
  await chat.ended("Finished");
  const longest = await page.evaluate(async () => {
    let longest = 0;
    for (let last = performance.now(), end = last + 1500; last < end; ) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    }
    return longest;
  });
  assert.ok(longest < 8000, `the page was blocked for ${longest} ms`);
  const block = chat.lastTurn.getByRole("group", { name: "Code, rust" });
  await block.locator(".code-keyword").waitFor();
  assert.equal(await chat.lastTurn.getByRole("group", { name: "Code, markdown" }).locator("code span").count(), 0);
});

test("formulas are MathML, and prices, code, errors and unfinished formulas are text", async () => {
  await chat.send("formulas");
  const message = chat.lastTurn.locator(".message.from-agent");
  await message.getByText("Unfinished: $x^2 +").waitFor();
  await message.locator("math").nth(3).waitFor();
  const maths = () => message.locator("math").evaluateAll((all) => all.map((one) => [one.namespaceURI, one.getAttribute("display"), one.textContent]));
  const namespace = "http://www.w3.org/1998/Math/MathML";
  const shown = [
    [namespace, null, "∑ixi"],
    [namespace, null, "x∈ℝ"],
    [namespace, null, "12"],
    [namespace, "block", "f(x)=x2=4"],
  ];
  assert.deepEqual(await maths(), shown);
  assert.equal(await message.locator("h2 math").count(), 1);
  assert.equal(await message.locator("annotation, span, [style], [href]").count(), 0);
  for (const text of ["$5 or $10 is a price. The variable $HOME is not set", "An error: $\\frac{1$."]) {
    assert.ok((await message.textContent()).includes(text), text);
  }
  assert.equal(await message.locator("code").textContent(), "$x$");
  const cells = message.locator("mtd mo");
  const [first, second] = await cells.filter({ hasText: "=" }).evaluateAll((all) => all.map((sign) => Math.round(sign.getBoundingClientRect().left)));
  assert.equal(first, second);
  await message.locator("math").first().evaluate((formula) => (formula.dataset.first = "kept"));
  await page.getByRole("button", { name: "Stop" }).click();
  await chat.ended("Stopped");
  await message.locator("math").nth(4).waitFor();
  assert.deepEqual(await maths(), [...shown, [namespace, null, "x2+1"]]);
  assert.equal(await message.locator("math").first().getAttribute("data-first"), "kept", "the other blocks are not rendered again");
  await checkAccessibility(page);
  await screenshot(page, "formulas-light");
  await chat.lastTurn.getByRole("button", { name: "Copy the answer" }).click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(copied.includes("$\\frac{1}{2}$") && copied.endsWith("Unfinished: $x^2 + 1$"), copied);
});

test("the output of commands is text in a terminal, whatever its words and fences", async () => {
  await chat.send("output");
  await chat.ended("Finished");
  await chat.lastTurn.getByRole("button", { name: /^Ran 4 commands/ }).click();
  const call = (title) => chat.lastTurn.locator(".tool").filter({ has: page.locator(".tool-title").getByText(title, { exact: true }) });
  const output = async (title) => {
    const shown = call(title);
    if (!(await shown.locator(".terminal pre").isVisible())) await shown.locator("summary.tool-head").click();
    return shown.locator(".terminal pre").textContent();
  };
  assert.equal(await output("ls pkg"), "__init__.py\n__main__.py\n# not a title\n\n* 3 files");
  assert.equal(await output("pytest"), "1 passed in __main__.py");
  assert.equal(await call("pytest").locator("pre .ansi-green").textContent(), "1 passed");
  assert.equal(await output("cat README.md"), "# Title\n```sh\nmake\n```\n\n```sh\nmake test\n```");
  assert.equal(await output("Run the linter"), "__a__ is *unused*");
  assert.equal(await call("Run the linter").getByText("lint", { exact: true }).count(), 1, "the command is shown once");
  await call("Run the linter").getByText("exit 1").waitFor();
  await call("Read pkg/__init__.py").locator("summary.tool-head").click();
  assert.equal(await call("Read pkg/__init__.py").getByRole("group", { name: "Code, python" }).locator("pre").textContent(), '__all__ = ["a"]');
  await call("Find names").locator("summary").click();
  assert.equal(await call("Find names").getByRole("group", { name: "Output" }).textContent(), "__init__.py:1\n__main__.py:2\n");
  assert.equal(await chat.lastTurn.locator(".tool .markdown").count(), 0);
  await checkAccessibility(page);
  await screenshot(page, "output-light");
});

test("a fence has the colours of its output and a limited height", async () => {
  const block = chat.lastTurn.locator(".message.from-agent").getByRole("group", { name: "Code, text" });
  assert.equal(await block.locator(".ansi-red").textContent(), "error");
  assert.equal((await block.locator("pre").textContent()).includes("\u001b"), false);
  const height = await block.locator("pre").evaluate((pre) => ({ shown: pre.clientHeight, whole: pre.scrollHeight }));
  assert.ok(height.shown <= 400 && height.whole > 1000, JSON.stringify(height));
  await page.emulateMedia({ media: "print" });
  assert.equal(await block.locator("pre").evaluate((pre) => pre.clientHeight === pre.scrollHeight), true, "a print has all lines");
  await page.emulateMedia({ media: "screen" });
});

test("a table scrolls before its words break", async () => {
  const table = chat.lastTurn.locator(".markdown table");
  for (const { width, height } of [{ width: 1280, height: 900 }, { width: 390, height: 800 }]) {
    await page.setViewportSize({ width, height });
    const box = await table.evaluate((element) => ({ shown: element.clientWidth, whole: element.scrollWidth, page: document.documentElement.scrollWidth }));
    assert.ok(box.whole > box.shown && box.page <= width, JSON.stringify(box));
    // A word is in one line: as high as a letter.
    const cells = await table.locator("tbody td").evaluateAll((all) => all.filter((cell) => !cell.textContent.trim().includes(" ")).map((cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return new Set([...range.getClientRects()].map(({ bottom }) => Math.round(bottom / 10))).size;
    }));
    assert.ok(cells.length >= 4 && cells.every((lines) => lines === 1), JSON.stringify(cells));
  }
  const long = await table.locator("td").filter({ hasText: "words words" }).evaluate((cell) => cell.clientWidth);
  assert.ok(long >= 200, `a text has ${long} px`);
  await table.scrollIntoViewIfNeeded();
  await checkAccessibility(page);
  await screenshot(page, "table-phone");
  await page.setViewportSize({ width: 1280, height: 900 });
});

test("each text has the direction of its letters", async () => {
  const direction = (element) => element.evaluate((found) => getComputedStyle(found).direction);
  const block = (text) => chat.lastTurn.locator(".markdown > div").filter({ hasText: text });
  assert.equal(await direction(block("شكرا")), "rtl");
  assert.equal(await direction(block("واحد")), "rtl");
  assert.equal(await direction(block("And English again.")), "ltr");
  await chat.message.fill("شكرا");
  assert.equal(await direction(chat.message), "rtl");
  await screenshot(page, "direction-light");
  await chat.message.fill("");
});

/** The longest task of the browser's threads during a turn, in milliseconds of the processor. */
async function longestTask(message) {
  const session = await page.context().newCDPSession(page);
  const tasks = [];
  session.on("Tracing.dataCollected", ({ value }) => tasks.push(...value));
  const traced = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel"] } });
  await chat.send(message);
  await chat.ended("Finished");
  // The frame after the last update.
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  await session.send("Tracing.end");
  await traced;
  await session.detach();
  const times = tasks.filter(({ name, tdur }) => name.endsWith("RunTask") && tdur).map(({ tdur }) => tdur / 1000);
  assert.ok(times.length > 10, "the trace has tasks");
  return Math.max(...times);
}

for (const place of ["message", "fence", "letters", "output", "rewritten", "read", "raw", "diff"]) {
  test(`a line of 10 MB is shown in parts and does not block the page: ${place}`, async () => {
    // The time of the processor changes little on a busy machine, and the best of a few tries even less.
    let longest = Infinity;
    for (let tries = 0; tries < 4 && longest > 100; tries += 1) longest = Math.min(longest, await longestTask(`long ${place}`));
    assert.ok(longest <= 100, `a task of ${longest} ms`);
    const shown = await chat.lastTurn.evaluate((turn) => turn.textContent.length);
    assert.ok(shown > 100 && shown < 200_000, `${shown} characters`);
  });
}

test("the next parts of a long line follow on request", async () => {
  const more = chat.lastTurn.getByRole("button", { name: /^Show more/ });
  await chat.send("long message");
  await chat.ended("Finished");
  const length = () => chat.lastTurn.locator(".message.from-agent").evaluate((message) => message.textContent.length);
  const before = await length();
  await more.click();
  await page.waitForFunction((least) => [...document.querySelectorAll(".message.from-agent")].at(-1).textContent.length > least, before * 1.5);
  await checkAccessibility(page);
  await screenshot(page, "parts-light");
});
