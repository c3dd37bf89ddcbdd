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
  await turn("a better idea").getByText("Queued, number 1").waitFor();
  assert.equal(await turn("the first idea").count(), 0);
  await queued("a better idea", "Send later").click();
  await turn("a better idea").getByText("Queued, number 2").waitFor();
  await turn("the second idea").getByText("Queued, number 1").waitFor();
  assert.deepEqual((await chat.turns.locator(".from-person").allTextContents()).map((text) => text.replace("You wrote: ", "")), ["/slow 300", "the second idea", "a better idea"]);
  await queued("a better idea", "Send earlier").click();
  await turn("a better idea").getByText("Queued, number 1").waitFor();
  await queued("a better idea", "Edit").click();
  await page.keyboard.press("Escape");
  await queued("a better idea", "Remove").click();
  await turn("a better idea").getByText("Removed from the queue").waitFor();
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
