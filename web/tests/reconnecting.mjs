// Errors of a lost connection: they end with it, and a message without a response is sent again, once.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { oneChat } from "./support/one_chat.mjs";

const { page, chat, gateway } = await oneChat({ config: '[agents.demo]\nbuiltin = "demo"\n', agent: /demo/i, viewport: { width: 1440, height: 900 }, allowFailedRequests: true });

const unreachable = page.getByRole("alert").filter({ hasText: "The gateway cannot be reached." });

test("a message to a gateway that is away is sent once after its return", async () => {
  await chat.send("/help");
  await chat.ended("Finished");
  await gateway.kill();
  await chat.message.fill("Are you back?");
  await chat.message.press("Enter");
  await unreachable.waitFor();
  assert.equal(await chat.message.inputValue(), "Are you back?");
  await checkAccessibility(page);
  await screenshot(page, "unreachable-light");
  await gateway.restart();
  await chat.turns.nth(1).getByText("Are you back?").first().waitFor();
  await unreachable.waitFor({ state: "detached" });
  await chat.ended("Finished");
  assert.equal(await chat.turns.count(), 2);
  assert.equal(await chat.message.inputValue(), "");
});

test("a changed message stays in the field, without the error", async () => {
  await gateway.kill();
  await chat.message.fill("One");
  await chat.message.press("Enter");
  await unreachable.waitFor();
  await chat.message.fill("Two");
  await gateway.restart();
  await unreachable.waitFor({ state: "detached" });
  await page.locator(".banner").waitFor({ state: "detached" });
  assert.equal(await chat.message.inputValue(), "Two");
  await chat.message.press("Enter");
  await chat.turns.nth(2).getByText("Two").first().waitFor();
  await chat.ended("Finished");
  assert.equal(await chat.turns.count(), 3);
});

test("errors of the panel, the list and the start page end with the lost connection", async () => {
  await page.keyboard.press("Alt+p");
  await page.getByRole("tab", { name: "Plan" }).click();
  await gateway.kill();
  await page.getByRole("tab", { name: "Files" }).click();
  const panel = page.getByRole("complementary", { name: "Details" });
  await panel.getByRole("alert").waitFor();
  const row = page.locator(".session-row.current");
  await row.hover();
  await row.getByRole("button", { name: /^Rename/ }).click();
  await page.getByLabel("Title of the session").fill("Another title");
  await page.keyboard.press("Enter");
  await page.getByRole("navigation", { name: "Sessions" }).getByRole("alert").waitFor();
  await gateway.restart();
  await unreachable.first().waitFor({ state: "detached" });
  await panel.getByText(/This folder is empty|[a-z]/).first().waitFor();
  await page.getByRole("alert").first().waitFor({ state: "detached" });

  await page.goto(`${gateway.origin}/#/`);
  await page.getByRole("button", { name: /^Agent:/ }).waitFor();
  await gateway.kill();
  await page.getByRole("textbox", { name: "First message" }).fill("/help");
  await page.keyboard.press("Enter");
  await unreachable.waitFor();
  await gateway.restart();
  await unreachable.waitFor({ state: "detached" });
  assert.equal(await page.getByRole("textbox", { name: "First message" }).inputValue(), "/help");
});

