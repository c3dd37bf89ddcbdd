// The list of sessions (groups, search, titles), the theme, copied text and earlier messages.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { oneChat } from "./support/one_chat.mjs";

const DEMO = /demo/;
const CODE = "/// Adds two numbers.\nfn add(a: u64, b: u64) -> u64 {\n    a + b // <- not HTML\n}";

const { page, chat, watch, link } = await oneChat({ agent: DEMO, viewport: { width: 1280, height: 800 }, reducedMotion: "reduce" });
await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
await chat.send("/markdown");
await chat.ended("Finished");

const clipboard = () => page.evaluate(() => navigator.clipboard.readText());

test("a code block and an answer are copied as the agent wrote them", async () => {
  const block = page.getByRole("group", { name: "Code, rust" }).first();
  // The word stays for two seconds.
  await Promise.all([block.getByText("Copied").waitFor(), block.getByRole("button", { name: "Copy" }).click()]);
  assert.equal((await clipboard()).trim(), CODE);
  await block.getByRole("button", { name: "Wrap" }).click();
  assert.equal(await block.locator("pre").evaluate((pre) => getComputedStyle(pre).whiteSpace), "pre-wrap");
  await block.getByText("Copied").waitFor({ state: "detached" });
  await Promise.all([chat.lastTurn.getByText("Copied").last().waitFor(), chat.lastTurn.getByRole("button", { name: "Copy the answer" }).click()]);
  const answer = await clipboard();
  assert.ok(answer.includes("```rust\n"), answer);
});

test("a page without a secure context copies too", async () => {
  await page.evaluate(() => {
    navigator.clipboard.writeText = () => Promise.reject(new Error("not permitted"));
  });
  const block = page.getByRole("group", { name: "Code, diff" });
  await Promise.all([block.getByText("Copied").waitFor(), block.getByRole("button", { name: "Copy" }).press("Enter")]);
  assert.equal((await clipboard()).trim(), "- old line\n+ new line");
  assert.equal(await block.getByRole("button", { name: /^Cop(y|ied)$/ }).evaluate((button) => button === document.activeElement), true);
  await page.evaluate(() => delete navigator.clipboard.writeText);
});

test("the menu of a session copies its link and saves its conversation", async () => {
  const more = page.getByRole("button", { name: "More about this session" });
  const items = page.getByRole("group", { name: "This session" });
  await more.click();
  await checkAccessibility(page, "session menu");
  await screenshot(page, "session-menu-light");
  await Promise.all([items.getByText("Copied").waitFor(), items.getByRole("button", { name: "Copy the link" }).click()]);
  assert.equal(await clipboard(), page.url());
  assert.match(page.url(), /#\/s\/[0-9a-f-]+$/, "the link has no key");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    items.getByRole("button", { name: "Download as Markdown" }).click(),
  ]);
  assert.equal(download.suggestedFilename(), "markdown.md");
  const text = await readFile(await download.path(), "utf8");
  assert.ok(text.startsWith("# /markdown\n"), text);
  assert.ok(text.includes(`\`\`\`rust\n${CODE}\n\`\`\``), text);
  await more.click();
  const [exported] = await Promise.all([
    page.waitForEvent("download"),
    items.getByRole("button", { name: "Download as JSON" }).click(),
  ]);
  assert.equal(exported.suggestedFilename(), "markdown.json");
  const { sessionId, events } = JSON.parse(await readFile(await exported.path(), "utf8"));
  assert.equal(page.url().endsWith(sessionId), true);
  assert.deepEqual(events.map(({ seq }) => seq), events.map((_, at) => at + 1), "every event of the log, once and in order");
  assert.deepEqual([events[0].type, events.some(({ type }) => type === "prompt.completed")], ["session.created", true]);
  await more.click();
  await page.keyboard.press("Escape");
  await items.waitFor({ state: "detached" });
  assert.equal(await more.evaluate((button) => button === document.activeElement), true);
});

test("the up arrow in an empty field writes an earlier message again", async () => {
  await chat.send("/help");
  await chat.ended("Finished");
  await chat.message.press("ArrowUp");
  assert.equal(await chat.message.inputValue(), "/help");
  await chat.message.press("ArrowUp");
  assert.equal(await chat.message.inputValue(), "/markdown");
  await chat.message.press("ArrowUp");
  assert.equal(await chat.message.inputValue(), "/markdown", "there is no older message");
  await chat.message.press("ArrowDown");
  await chat.message.press("ArrowDown");
  assert.equal(await chat.message.inputValue(), "");
  await chat.turns.first().getByRole("button", { name: "Edit and send again" }).click();
  assert.equal(await chat.message.inputValue(), "/markdown");
  assert.equal(await chat.message.evaluate((field) => field === document.activeElement), true);
  await chat.message.fill("my own words");
  await chat.message.press("ArrowUp");
  assert.equal(await chat.message.inputValue(), "my own words");
  await chat.message.fill("");
});

test("sessions are renamed, grouped, found by Ctrl+K and opened without a mouse", async () => {
  const row = page.locator(".session-row.current");
  await row.hover();
  await row.getByRole("button", { name: /^Rename/ }).click();
  const field = page.getByRole("textbox", { name: "Title of the session" });
  await field.fill("The tour of the demo agent");
  await field.press("ArrowDown");
  await field.press("Enter");
  await row.locator(".session-title").filter({ hasText: "The tour of the demo agent" }).waitFor();
  await page.getByRole("heading", { name: "The tour of the demo agent" }).waitFor();
  const toured = page.url();

  await page.getByRole("link", { name: "New session" }).click();
  await chat.start(DEMO);
  await chat.send("/permission");
  await chat.permission.waitFor();
  const needsYou = page.getByRole("region", { name: "Needs you" });
  await needsYou.getByRole("link").waitFor();
  const today = page.getByRole("region", { name: "Today" });
  assert.equal(await today.getByRole("link").count(), 1);
  await checkAccessibility(page, "groups");
  await screenshot(page, "groups-light");

  await page.keyboard.press("Control+k");
  await page.keyboard.type("tour");
  await needsYou.waitFor({ state: "detached" });
  await screenshot(page, "search-light");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForURL(toured);
  await page.keyboard.press("Control+k");
  await page.keyboard.press("Escape");
  await needsYou.waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("no such session");
  await page.getByText("No session matches.").waitFor();
  await checkAccessibility(page, "no match");
  await page.keyboard.press("Escape");
});

test("Escape in the search does not stop the agent", async () => {
  await chat.send("/slow 60");
  await chat.lastTurn.locator(".working").waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("tour");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  assert.equal(await chat.message.evaluate((field) => field === document.activeElement), true);
  assert.equal(await chat.lastTurn.locator(".working").count(), 1);
  await page.keyboard.press("Escape");
  await chat.ended("Stopped");
});

test("the chosen theme stays, and the system's return", async () => {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  const choice = page.getByRole("combobox", { name: "Theme" });
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByText(/^acp-gateway \d+\.\d+/).waitFor();
  await choice.selectOption("Dark");
  const dark = await ground();
  assert.notEqual(dark, light);
  await page.reload();
  await page.getByRole("button", { name: "Settings" }).click();
  await choice.waitFor();
  assert.equal(await ground(), dark);
  await checkAccessibility(page, "dark");
  await screenshot(page, "chosen-dark");
  await choice.selectOption("System");
  assert.equal(await ground(), light);
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), undefined);
  await page.getByRole("combobox", { name: "Density" }).selectOption("Compact");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.density), "compact");
  await checkAccessibility(page, "compact");
  await page.getByRole("combobox", { name: "Density" }).selectOption("Comfortable");
  await page.keyboard.press("Escape");
});

test("on a narrow screen Ctrl+K opens the list over the conversation", async () => {
  await page.setViewportSize({ width: 390, height: 800 });
  await page.keyboard.press("Control+k");
  await page.getByRole("searchbox", { name: "Search sessions" }).waitFor();
  await checkAccessibility(page, "list at 390 px");
  await screenshot(page, "groups-small");
});

test("the times of the list grow while nothing happens", async () => {
  const other = await watch.newPage();
  await other.clock.install();
  await other.goto(link);
  const time = other.locator(".session-row time").first();
  const before = await time.textContent();
  await other.clock.fastForward("07:30");
  await other.waitForFunction((text) => document.querySelector(".session-row time").textContent !== text, before);
  // The session itself is some seconds old.
  assert.match(await time.textContent(), /^([7-9]|1\d) min ago$/);
  await other.close();
});

test("the menu of a session shows the output of the agent", async () => {
  await page.setViewportSize({ width: 1280, height: 720 });
  const more = page.getByRole("button", { name: "More about this session" });
  await more.click();
  await page.getByRole("group", { name: "This session" }).getByRole("button", { name: "Error output of the agent" }).click();
  const dialog = page.getByRole("dialog", { name: "Error output of the agent" });
  await dialog.getByText("The process has written nothing").waitFor();
  await checkAccessibility(page, "output of the agent");
  await screenshot(page, "agent-output-light");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(await more.evaluate((button) => button === document.activeElement), true);
});

test("the menu of a session forks and closes it", async () => {
  const more = page.getByRole("button", { name: "More about this session" });
  const items = page.getByRole("group", { name: "This session" });
  await page.setViewportSize({ width: 1280, height: 720 });
  const parent = page.url();
  await more.click();
  await items.getByRole("button", { name: "Fork" }).click();
  await page.waitForURL((url) => url.href !== parent);
  await page.getByRole("log").getByText("/help").first().waitFor();
  await chat.send("/about");
  await chat.ended("Finished");
  await more.click();
  await items.getByRole("button", { name: "Close the session" }).click();
  await page.getByText("This session is closed.").waitFor();
  await screenshot(page, "session-closed-light");
  await more.click();
  assert.equal(await items.getByRole("button", { name: "Close the session" }).count(), 0);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Open it again" }).click();
  await chat.message.waitFor();
});

test("a new conversation begins after a question that says what is lost", async () => {
  const more = page.getByRole("button", { name: "More about this session" });
  const entry = page.getByRole("group", { name: "This session" }).getByRole("button", { name: "New conversation" });
  const dialog = page.getByRole("dialog", { name: "New conversation" });
  const lost = page.getByRole("log").getByText("A new conversation was requested. It does not remember what came before.");
  await more.click();
  await entry.click();
  await dialog.getByText("The agent forgets everything that was said and done in this session").waitFor();
  await checkAccessibility(page, "new conversation");
  await screenshot(page, "new-conversation-light");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(await lost.count(), 0, "nothing was requested");
  await more.click();
  await entry.click();
  await dialog.getByRole("button", { name: "Forget and begin" }).click();
  await lost.waitFor();
  await dialog.waitFor({ state: "detached" });
  await chat.send("/about");
  await chat.ended("Finished");
});
