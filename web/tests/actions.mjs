// Commands on the page: the complete command before the approval, the output that the agent reports in `_meta`, and
// the final state of a call that the agent did not complete.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";

const agent = fileURLToPath(new URL("support/terse_agent.mjs", import.meta.url));
const { page, chat } = await oneChat({ config: nodeAgent("terse", agent), agent: /terse/ });

test("a permission card shows the whole command, its folder and the raw input", async () => {
  await chat.send("run");
  const card = chat.permission;
  await card.waitFor();
  assert.equal(await card.locator(".permission-title").textContent(), "rm -rf build");
  assert.equal(await card.getByRole("group", { name: "Command" }).textContent(), "rm -rf build && make all");
  assert.match(await card.locator(".action-row").textContent(), /^Runs in \/.+\/workspaces\/[0-9a-f-]+$/);
  assert.equal(await card.getByRole("group", { name: "Raw input" }).isVisible(), false);
  await card.getByText("Raw input").click();
  assert.match(await card.getByRole("group", { name: "Raw input" }).textContent(), /"description": "Build anew"/);
  await checkAccessibility(page);
  await screenshot(page, "permission-command-light");
  await card.getByRole("button", { name: "Allow" }).and(page.locator('[aria-disabled="false"]')).click();
  await chat.ended("Finished");
});

test("a tool card shows the output that the agent reports in _meta", async () => {
  const card = chat.lastTurn.locator(".tool");
  const terminal = card.locator(".terminal");
  await terminal.waitFor();
  assert.equal(await terminal.locator("figcaption code").textContent(), "rm -rf build && make all");
  assert.equal(await terminal.locator("figcaption > span").textContent(), "exit 0");
  assert.equal(await terminal.locator("pre").textContent(), "cc main.c\ndone: build/app");
  await checkAccessibility(page);
  await screenshot(page, "command-output-light");
});

test("a call that a cancelled turn left open is shown as stopped", async () => {
  await chat.send("hang");
  await chat.lastTurn.locator(".tool-status", { hasText: "running" }).waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await chat.ended("Stopped");
  assert.equal(await chat.lastTurn.locator(".tool-status").textContent(), "stopped");
});

test("a failed turn shows the data of the agent's error", async () => {
  await chat.send("fail");
  await chat.lastTurn.locator(".problem").waitFor();
  await chat.lastTurn.getByText("What the agent reported").click();
  assert.match(await chat.lastTurn.getByRole("group", { name: /Data of/ }).textContent(), /the model is not installed/);
  await screenshot(page, "error-data-light");
});
