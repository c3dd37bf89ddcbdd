// The queue of a session: messages that wait are edited, removed, and sent now.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Api } from "./support/api.mjs";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { oneChat } from "./support/one_chat.mjs";

const { page, chat, link } = await oneChat({ agent: /demo/ });
const turn = (words) => chat.turns.filter({ hasText: words });
const waiting = (words) => chat.queued.filter({ hasText: words });
const queued = (words, name) => waiting(words).getByRole("button", { name, exact: true });
const order = () => page.locator(".queue-text").allTextContents();

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
  // React writes the value of the field into its text, so the row has the words before they are saved.
  await field.waitFor({ state: "detached" });
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
  await waiting("a better idea").waitFor({ state: "detached" });
  assert.deepEqual(await order(), ["the second idea"]);
  assert.equal(await turn("a better idea").count(), 0);
});

test("a message that is moved by keys keeps the focus on its button", async () => {
  await chat.send("the third idea");
  const changes = [];
  page.on("request", (request) => request.method() === "PATCH" && changes.push(request.url()));
  const [earlier, later] = [queued("the third idea", "Send earlier"), queued("the third idea", "Send later")];
  const isFocused = (button) => button.evaluate((element) => element === document.activeElement);
  await earlier.press("Enter");
  await waiting("the third idea").and(chat.queued.nth(0)).waitFor();
  assert.equal(await earlier.getAttribute("aria-disabled"), "true");
  assert.equal(await isFocused(earlier), true);
  await earlier.press("Enter");
  assert.equal(changes.length, 1, "a disabled button does nothing");
  await later.press("Enter");
  await waiting("the third idea").and(chat.queued.nth(1)).waitFor();
  assert.equal(await isFocused(later), true);
  await queued("the third idea", "Remove").press("Enter");
  await waiting("the third idea").waitFor({ state: "detached" });
  await page.waitForFunction(() => document.activeElement?.id === "message");
});

test("a double click on an action does not act on the next row", async () => {
  await chat.send("the third idea");
  const removals = [];
  page.on("request", (request) => request.url().endsWith("/cancel") && removals.push(request.url()));
  const { x, y, width, height } = await queued("the third idea", "Remove").boundingBox();
  // The row above moves below the pointer.
  await page.mouse.dblclick(x + width / 2, y + height / 2, { delay: 60 });
  await waiting("the third idea").waitFor({ state: "detached" });
  assert.equal(removals.length, 1);
  assert.deepEqual(await order(), ["the second idea"]);
});

test("a message is read as a whole", async () => {
  const whole = `first line\n${"many words ".repeat(40)}end`;
  await chat.send(whole);
  await waiting("many words").getByRole("button", { expanded: false }).click();
  assert.equal(await page.locator(".queue-whole").innerText(), whole);
  await checkAccessibility(page);
  await screenshot(page, "queue-open");
  await waiting("many words").getByRole("button", { expanded: true }).click();
  await queued("many words", "Remove").click();
  await waiting("many words").waitFor({ state: "detached" });
});

test("a queued message is removed", async () => {
  await queued("the second idea", "Remove").click();
  await waiting("the second idea").waitFor({ state: "detached" });
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

test("a change of a message that starts meanwhile returns to the field", async () => {
  await chat.send("/slow 305");
  await chat.send("/about");
  await queued("/about", "Edit").click();
  await page.getByRole("textbox", { name: "Queued message" }).fill("a changed text");
  const running = (await turn("/slow 305").getAttribute("id")).slice("turn-".length);
  await new Api(link).call("POST", `${new URL(page.url()).hash.replace("#/s/", "sessions/")}/prompts/${running}/cancel`);
  await turn("/about").getByText("Finished").waitFor();
  await page.waitForFunction(() => document.getElementById("message").value === "a changed text");
  const note = page.getByText("The changed text is in the field.");
  await note.waitFor();
  await chat.send("/about");
  await note.waitFor({ state: "detached" });
  await chat.ended("Finished");
});

test("Shift+Tab leads from the field to a question, also with a queue", async () => {
  await chat.message.fill("/permission");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await chat.permission.waitFor();
  await chat.send("the fifth idea");
  await page.waitForFunction(() => document.getElementById("message").value === "" && document.activeElement.id === "message");
  await page.keyboard.press("Shift+Tab");
  assert.equal(await chat.permission.evaluate((card) => card.contains(document.activeElement)), true);
  await chat.permission.getByRole("button", { name: "Allow once" }).and(page.locator('[aria-disabled="false"]')).click();
  await turn("the fifth idea").getByText("Finished").waitFor();
});

test("a long queue does not hide the running turn", async () => {
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
  // On a phone, a row has its actions when it is open.
  assert.equal(await queued("idea 1", "Remove").isVisible(), false);
  await waiting("idea 1").getByRole("button", { expanded: false }).click();
  await queued("idea 1", "Remove").waitFor();
  await checkAccessibility(page);
  await screenshot(page, "queue-open-phone");
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

test("a double click on the button that stops does not send what it returns", async () => {
  await chat.send("/slow 306");
  await chat.send("the third idea");
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  const prompts = [];
  page.on("request", (request) => request.url().endsWith("/prompts") && prompts.push(request.url()));
  const { x, y, width, height } = await page.getByRole("button", { name: "Stop", exact: true }).boundingBox();
  await page.mouse.dblclick(x + width / 2, y + height / 2, { delay: 60 });
  await turn("/slow 306").getByText("Stopped").waitFor();
  await page.waitForFunction(() => document.getElementById("message").value === "the third idea");
  // As a late second click.
  await page.getByRole("button", { name: "Send", exact: true }).dispatchEvent("click", { detail: 2 });
  await page.evaluate(() => fetch("livez"));
  assert.deepEqual(prompts, []);
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
  // The time begins with the key, which is before the page sends, so a slow machine makes it longer and not shorter.
  await page.evaluate(() => {
    const times = { sent: [], stop: null };
    document.addEventListener("keydown", (event) => event.key === "Enter" && times.sent.push(performance.now()), true);
    new MutationObserver(() => {
      const stops = document.querySelector(".composer .stops") !== null;
      times.stop = stops ? (times.stop ?? performance.now()) : null;
    }).observe(document.querySelector(".composer"), { subtree: true, childList: true, attributes: true, characterData: true });
    globalThis.composerTimes = times;
  });
  await chat.send("one");
  await chat.send("two");
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  const { sent, stop } = await page.evaluate(() => globalThis.composerTimes);
  assert.ok(stop - sent.at(-1) >= 600, `${stop - sent.at(-1)} ms`);
  await page.keyboard.press("Escape");
  await turn("/slow 303").getByText("Stopped").waitFor();
});
