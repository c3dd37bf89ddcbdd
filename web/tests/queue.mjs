// The queue of a session: messages that wait are edited, removed, and sent now.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { oneChat } from "./support/one_chat.mjs";

const { page, chat } = await oneChat({ agent: /demo/ });
const turn = (words) => chat.turns.filter({ hasText: words });
const queued = (words, name) => turn(words).getByRole("button", { name, exact: true });

test("a queued message is edited in the field", async () => {
  await chat.send("/slow 300");
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  await chat.message.fill("typed");
  await page.getByRole("button", { name: "Queue" }).waitFor();
  await chat.message.fill("");
  await chat.send("the first idea");
  await chat.send("the second idea");
  await queued("the first idea", "Edit").waitFor();
  await checkAccessibility(page);
  await screenshot(page, "queue-light");
  await queued("the first idea", "Edit").click();
  await turn("the first idea").getByText("Removed from the queue").waitFor();
  assert.equal(await chat.message.inputValue(), "the first idea");
  await chat.message.fill("");
});

test("a queued message is removed", async () => {
  await queued("the second idea", "Remove").click();
  await turn("the second idea").getByText("Removed from the queue").waitFor();
  assert.equal(await chat.message.inputValue(), "");
  await turn("/slow 300").locator(".working").waitFor();
});

test("the next message is sent now, and the others wait", async () => {
  await chat.send("/slow 301");
  await chat.send("/about");
  await queued("/slow 301", "Stop and send now").waitFor();
  assert.equal(await queued("/about", "Stop and send now").count(), 0);
  await queued("/slow 301", "Stop and send now").click();
  await turn("/slow 300").getByText("Stopped").waitFor();
  await turn("/slow 301").locator(".working").waitFor();
  await queued("/about", "Stop and send now").click();
  await chat.ended("Finished");
  await turn("/slow 301").getByText("Stopped").waitFor();
});
