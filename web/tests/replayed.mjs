// The page with a real agent: recordings of the Claude Code CLI, with a command, a thought, a file and two plain turns.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { oneChat } from "./support/one_chat.mjs";

const file = (name) => fileURLToPath(new URL(name, import.meta.url));
const recordings = ["tool-stdio", "think", "tool-accept-write", "two"].map((name) => file(`../../tests/agents/claude-code-2.1.197/${name}.jsonl`));
const args = JSON.stringify([file("support/stream_json_agent.mjs"), ...recordings]);
const config = `[agents.claude]\ncommand = ${JSON.stringify(process.execPath)}\nargs = ${args}\ndialect = "stream-json"\n`;
const { page, chat, gateway } = await oneChat({ config, agent: /claude/, viewport: { width: 1280, height: 800 }, allowFailedRequests: true });
await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
const clipboard = () => page.evaluate(() => navigator.clipboard.readText());

test("a command waits for its approval, with the whole command", async () => {
  await chat.send("TOOL:shell:echo hi > made.txt;;");
  await chat.permission.waitFor();
  assert.equal(await chat.permission.getByRole("group", { name: "Command" }).textContent(), "echo hi > made.txt");
  await chat.permission.getByText(/^Rejected at .* if nobody answers$/).waitFor();
  assert.match(await page.title(), /^\(!\) /);
  await checkAccessibility(page);
  await screenshot(page, "replayed-approval");
  await chat.permission.locator('[aria-disabled="false"]').first().click();
  await chat.ended("Finished");
  assert.match(await chat.answer.textContent(), /tool said: \(Bash completed with no output\)/);
  await chat.lastTurn.locator(".request-line").filter({ hasText: /chosen by owner/ }).waitFor();
});

test("a thought is one line, and opens", async () => {
  await chat.send("THINK;;");
  await chat.ended("Finished");
  await chat.lastTurn.getByText(/^Thought for/).click();
  await chat.lastTurn.getByText("let me think.").waitFor();
  assert.match(await chat.answer.textContent(), /thought it over/);
});

test("a written file is a step with its place", async () => {
  await chat.send("TOOL:write:/project/w.txt;;");
  await chat.ended("Finished");
  await chat.lastTurn.locator(".tool, .activity").filter({ hasText: /Write|w\.txt|Edited/ }).first().waitFor();
  assert.match(await chat.answer.textContent(), /File created successfully/);
  await checkAccessibility(page);
});

test("turns follow each other, and the conversation is the same after a reload and a killed gateway", async () => {
  for (const words of ["hello one", "hello two"]) {
    await chat.send(words);
    await chat.ended("Finished");
    assert.match(await chat.answer.textContent(), new RegExp(`mock says: ${words}`));
  }
  const before = await chat.transcript();
  await page.reload();
  await chat.sameAs(before);
  await gateway.kill();
  await gateway.restart();
  await page.locator(".banner").waitFor({ state: "detached" });
  await chat.sameAs(before);
  await checkAccessibility(page);
  await screenshot(page, "replayed-conversation");
});

test("a turn, its link, its text and the whole conversation are taken along", async () => {
  const thought = chat.turns.nth(1);
  await thought.hover();
  await thought.getByRole("button", { name: "Copy the link to this turn" }).click();
  const link = await clipboard();
  assert.match(link, /#\/s\/[0-9a-f-]+\/t\/[^/]+$/);
  await thought.getByRole("button", { name: "Copy the answer" }).click();
  assert.equal(await clipboard(), "thought it over.");
  await page.getByRole("button", { name: "More about this session" }).click();
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download as Markdown" }).click()]);
  assert.match(await readFile(await download.path(), "utf8"), /mock says: hello two/);
  await page.goto(link);
  await page.locator(".turn.named").filter({ hasText: "thought it over" }).waitFor();
  await page.waitForFunction(() => document.querySelector(".turn.named").getBoundingClientRect().top < 200);
  assert.equal(await page.locator(".turn.named").evaluate((turn) => turn === document.activeElement), true);
  await screenshot(page, "replayed-turn-link");
});

test("the session is found again by its words, renamed and closed", async () => {
  await page.keyboard.press("Control+k");
  await page.getByRole("searchbox", { name: "Search sessions" }).fill("made.txt");
  await page.keyboard.press("ArrowDown");
  const row = page.locator(".session-row.current");
  await row.hover();
  await row.getByRole("button", { name: /^Rename/ }).click();
  await page.getByRole("textbox", { name: "Title of the session" }).fill("Recorded work");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Recorded work" }).waitFor();
  await page.getByRole("button", { name: "More about this session" }).click();
  await page.getByRole("button", { name: "Close the session", exact: true }).click();
  await page.getByText("This session is closed").waitFor();
  await page.getByRole("button", { name: "Open it again" }).click();
  await chat.message.waitFor();
});
