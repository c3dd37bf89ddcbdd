// Modes that the operator denies: the page disables them with the reason, and shows the error of the gateway otherwise.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";

const agent = fileURLToPath(new URL("support/modes_agent.mjs", import.meta.url));
const { page, chat } = await oneChat({ config: nodeAgent("modes", agent), agent: /modes/, allowFailedRequests: true });

test("denied modes and values are disabled with the reason", async () => {
  const mode = page.locator("label.option", { hasText: /^Mode/ }).locator("select");
  await mode.waitFor();
  const choices = (select) =>
    select.locator("option").evaluateAll((all) => all.map((option) => [option.textContent, option.disabled, option.title]));
  const reason = "The operator of this gateway denies this mode.";
  assert.deepEqual(await choices(mode), [
    ["Default", false, ""],
    ["Accept edits", false, ""],
    ["Bypass permissions (denied)", true, reason],
  ]);
  await page.getByRole("button", { name: "More options" }).click();
  assert.deepEqual(await choices(page.getByLabel("Sandbox")), [
    ["On", false, ""],
    ["Full access (denied)", true, reason],
  ]);
  assert.equal(await page.getByLabel("Yolo (denied)").isDisabled(), true);
  await checkAccessibility(page);
  await screenshot(page, "denied-options-light");
  await page.keyboard.press("Escape");
  await mode.selectOption("acceptEdits");
  await page.waitForFunction(() => [...document.querySelectorAll("select")].some((select) => select.value === "acceptEdits"));
  await checkAccessibility(page);
  await screenshot(page, "denied-modes-light");
});

test("a permission option that selects a denied mode is disabled, and the error of a hidden one is shown", async () => {
  await chat.send("plan");
  const card = chat.permission;
  await card.waitFor();
  await card.getByRole("button", { name: /approve edits/ }).and(page.locator('[aria-disabled="false"]')).waitFor();
  assert.equal(await card.getByRole("button", { name: /bypass permissions \(denied\)/ }).getAttribute("aria-disabled"), "true");
  await chat.message.focus();
  await page.keyboard.press("Shift+Tab");
  assert.equal(await card.evaluate((element) => element.contains(document.activeElement)), true);
  await page.keyboard.press("1");
  assert.equal(await chat.message.inputValue(), "1");
  await chat.message.fill("");
  await card.getByRole("button", { name: /yolo/ }).click();
  await page.getByText(/no client can select the mode yolo/i).first().waitFor();
  await card.getByRole("button", { name: /approve edits/ }).and(page.locator('[aria-disabled="false"]')).click();
  await chat.ended("Finished");
  assert.match(await chat.answer.textContent(), /^chosen: default\s*$/);
});

test("a slash command that selects a denied mode shows the error", async () => {
  await chat.message.fill("/yolo");
  await chat.message.press("Enter");
  await page.getByText(/no client can select the mode yolo/i).first().waitFor();
  await chat.message.fill("");
});

test("a denied mode that the agent enters by itself is shown", async () => {
  await chat.send("switch");
  await chat.ended("Finished");
  await chat.lastTurn.getByText(/The agent switched to the mode “bypassPermissions”/).waitFor();
  assert.equal(await page.locator("label.option", { hasText: /^Mode/ }).locator("select").inputValue(), "bypassPermissions");
});
