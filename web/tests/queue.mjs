// The queue of a session: messages that wait are edited, removed, and sent now.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { oneChat } from "./support/one_chat.mjs";

const { page, chat } = await oneChat({ agent: /demo/ });
const turn = (words) => chat.turns.filter({ hasText: words });
const waiting = (words) => chat.queued.filter({ hasText: words });
const queued = (words, name) => waiting(words).getByRole("button", { name, exact: true });
const order = () => page.locator(".queue-words").allTextContents();

test("a queued message is edited where it is, and moved", async () => {
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
  const field = page.getByRole("textbox", { name: "Queued message" });
  await field.fill("a better idea");
  await checkAccessibility(page);
  await page.getByRole("button", { name: "Save" }).click();
  await waiting("a better idea").waitFor();
  assert.deepEqual(await order(), ["a better idea", "the second idea"]);
  await queued("a better idea", "Send later").click();
  await waiting("a better idea").and(chat.queued.nth(1)).waitFor();
  assert.deepEqual(await order(), ["the second idea", "a better idea"]);
  await queued("a better idea", "Send earlier").click();
  await waiting("a better idea").and(chat.queued.nth(0)).waitFor();
  await queued("a better idea", "Edit").click();
  await page.keyboard.press("Escape");
  await queued("a better idea", "Remove").click();
  await turn("a better idea").getByText("Removed from the queue").waitFor();
  assert.deepEqual(await order(), ["the second idea"]);
});

test("a message that is moved by keys keeps the focus on its button", async () => {
  await chat.send("the third idea");
  const earlier = queued("the third idea", "Send earlier");
  await earlier.press("Enter");
  await waiting("the third idea").and(chat.queued.nth(0)).waitFor();
  assert.equal(await earlier.getAttribute("aria-disabled"), "true");
  assert.equal(await earlier.evaluate((button) => button === document.activeElement), true);
  await earlier.press("Enter");
  assert.deepEqual(await order(), ["the third idea", "the second idea"]);
  await queued("the third idea", "Remove").press("Enter");
  await chat.queued.and(waiting("the second idea")).waitFor();
  await page.waitForFunction(() => document.activeElement?.id === "message");
});

test("a queued message is removed", async () => {
  await queued("the second idea", "Remove").click();
  await turn("the second idea").getByText("Removed from the queue").waitFor();
  assert.equal(await chat.queued.count(), 0);
  assert.equal(await chat.message.inputValue(), "");
  await turn("/slow 300").locator(".working").waitFor();
});

test("any message is sent now, and the others wait", async () => {
  await chat.send("/about");
  await chat.send("/slow 301");
  await queued("/slow 301", "Send now").click();
  await turn("/slow 300").getByText("Stopped").waitFor();
  await turn("/slow 301").locator(".working").waitFor();
  assert.deepEqual(await order(), ["/about"]);
  await queued("/about", "Send now").click();
  await turn("/about").getByText("Finished").waitFor();
  await turn("/slow 301").getByText("Stopped").waitFor();
  assert.equal(await chat.queued.count(), 0);
});

test("many messages that wait leave the place of the running turn", async () => {
  await chat.send("/slow 304");
  for (const number of [1, 2, 3, 4, 5, 6]) await chat.send(`idea ${number} ${"with many words ".repeat(20)}`);
  const box = async (selector) => page.locator(selector).boundingBox();
  for (const [width, height] of [[1280, 720], [390, 844]]) {
    await page.setViewportSize({ width, height });
    const [queue, running] = [await box(".queue"), await turn("/slow 304").locator(".working").boundingBox()];
    assert.ok(queue.height <= height * 0.4, `${queue.height} of ${height} px`);
    assert.ok(running.y >= 0 && running.y + running.height <= queue.y, `${running.y} above ${queue.y}`);
    await checkAccessibility(page);
    await screenshot(page, `queue-many-${width}`);
  }
  await page.setViewportSize({ width: 1280, height: 720 });
  await page.keyboard.press("Escape");
  await turn("/slow 304").getByText("Stopped").waitFor();
  await page.waitForFunction(() => document.getElementById("message").value.startsWith("idea 1"));
  await chat.message.fill("");
});

test("a stop returns the messages that waited to the field", async () => {
  await chat.send("/slow 302");
  await chat.send("the third idea");
  await chat.send("the fourth idea");
  await chat.message.fill("and this");
  await page.keyboard.press("Escape");
  await turn("/slow 302").getByText("Stopped").waitFor();
  await page.waitForFunction(() => document.getElementById("message").value === "and this\n\nthe third idea\n\nthe fourth idea");
  await chat.message.fill("");
});

test("a double click on the button that sends does not stop the turn", async () => {
  await chat.message.fill("/slow 303");
  const button = page.getByRole("button", { name: "Send", exact: true });
  const { x, y, width, height } = await button.boundingBox();
  await page.mouse.dblclick(x + width / 2, y + height / 2, { delay: 20 });
  await turn("/slow 303").locator(".working").waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  await turn("/slow 303").locator(".working").waitFor();
  // A slow browser may receive the second click when the button is already the one that stops.
  const stops = [];
  page.on("request", (request) => request.url().endsWith("/cancel") && stops.push(request.url()));
  await page.getByRole("button", { name: "Stop", exact: true }).dispatchEvent("click", { detail: 2 });
  await turn("/slow 303").locator(".working").waitFor();
  assert.deepEqual(stops, []);
});

test("the button stops a turn 0.6 s after the last message at the earliest", async () => {
  // A change of the page is noticed in the same task, so a slow machine makes the time longer and not shorter.
  await page.evaluate(() => {
    const field = document.getElementById("message");
    const times = { sent: [], stop: null };
    let text = "";
    new MutationObserver(() => {
      if (text !== "" && field.value === "") times.sent.push(performance.now());
      text = field.value;
      const stops = document.querySelector(".composer .stops") !== null;
      times.stop = stops ? (times.stop ?? performance.now()) : null;
    }).observe(document.querySelector(".composer"), { subtree: true, childList: true, attributes: true, characterData: true });
    globalThis.composerTimes = times;
  });
  await chat.send("one");
  await chat.send("two");
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  const { sent, stop } = await page.evaluate(() => globalThis.composerTimes);
  assert.ok(stop - sent.at(-1) > 590, `${stop - sent.at(-1)} ms`);
  await page.keyboard.press("Escape");
  await turn("/slow 303").getByText("Stopped").waitFor();
});
