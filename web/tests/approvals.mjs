// A person who is about to approve a command sees all of it, and approves nothing by accident: text that is typed while a
// question arrives goes to the field in which it was begun.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Api } from "./support/api.mjs";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";

const agent = fileURLToPath(new URL("support/forms_agent.mjs", import.meta.url));
const config = `${nodeAgent("forms", agent)}\n[agents.demo]\nbuiltin = "demo"\nterminals = "client"\n`;
const { page, chat, gateway } = await oneChat({ config, agent: /forms/, viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", allowFailedRequests: true });
const api = new Api(gateway.link);

const LAPTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 800 };
const TEXT = "2 things first: 1 is to wait, 3 is to ask me?";

const sessions = [];

/** Opens a new session. Those before end, so that their agent is free; `keep`: they stay. */
async function session(agentName = "forms", size = LAPTOP, keep = false) {
  await page.setViewportSize(size);
  if (!keep) for (const before of sessions.splice(0)) await api.call("DELETE", `sessions/${before}`);
  const id = await api.session(agentName);
  sessions.push(id);
  await page.goto(`${gateway.origin}/#/s/${id}`);
  await page.waitForURL(new RegExp(id));
  await chat.message.waitFor();
  await page.waitForFunction(() => document.activeElement?.id === "message");
  return id;
}

const field = () => chat.message.inputValue();
const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.className || document.activeElement.tagName);
const option = (name) => chat.permission.getByRole("button", { name });
const command = () => chat.permission.getByRole("group", { name: "Command" });
/** The card is here, and its buttons can be pressed. */
const armed = () => page.locator('.permission-options [aria-disabled="false"]').first().waitFor({ state: "attached" });
/** Types as fast as a person, and waits until the page has all of it. */
const type = (text) => page.keyboard.type(text, { delay: 25 });

/** The requests that wait for an answer. */
async function open(id) {
  return (await api.call("GET", `sessions/${id}/requests`)).requests.length;
}

/** Moves the focus from the message field into the card. */
async function enter() {
  for (let tabs = 0; !(await chat.permission.evaluate((card) => card.contains(document.activeElement))); tabs += 1) {
    assert.ok(tabs < 12, "Shift+Tab leads to the question");
    await page.keyboard.press("Shift+Tab");
  }
}

async function answered(words) {
  await chat.lastTurn.locator(".from-agent").filter({ hasText: words }).waitFor();
}

describe("text that is typed while a question arrives", () => {
  for (const size of [LAPTOP, PHONE]) {
    const width = `${size.width} px`;

    test(`begins before, at and after the arrival: ${width}`, async () => {
      for (const before of [0, 3, 12]) {
        const id = await session("forms", size);
        // The question arrives after some of the characters.
        await type(TEXT.slice(0, before));
        const [, request] = await Promise.all([type(TEXT.slice(before, before + 10)), api.prompt(id, "text").then(() => api.request(id))]);
        assert.ok(request);
        await armed();
        await type(TEXT.slice(before + 10));
        assert.equal(await field(), TEXT);
        assert.equal(await focused(), "message");
        assert.equal(await open(id), 1);
      }
    });

    test(`begins in an empty field, long after the arrival: ${width}`, async () => {
      const id = await session("forms", size);
      await api.prompt(id, "text");
      await armed();
      // The time after which the page took the person for idle.
      await page.waitForTimeout(2000);
      assert.equal(await focused(), "message");
      await type(TEXT);
      assert.equal(await field(), TEXT);
      assert.equal(await open(id), 1);
    });

    test(`is in the change of a queued message, in the search and in the title: ${width}`, async () => {
      const id = await session("forms", size);
      await api.prompt(id, "text");
      await api.request(id);
      await api.prompt(id, "later");
      await page.reload();
      const edit = page.getByRole("region", { name: "Queue" }).getByRole("textbox");
      if (size === PHONE) await chat.queued.getByRole("button", { name: "later" }).click();
      await chat.queued.getByRole("button", { name: "Edit", exact: true }).click();
      await edit.fill("");
      await type("1 ");
      // The first question ends, and another client's answer brings the next one.
      await api.answer(id, await api.request(id), "permissions", { optionId: "no" });
      await type(TEXT);
      // The queued message has begun meanwhile, so its text returned to the message field.
      await chat.queued.waitFor({ state: "detached" });
      assert.equal(await field(), `1 ${TEXT}`);
      if (size === PHONE) return;

      const other = await session("forms", size);
      await page.keyboard.press("Control+k");
      const search = page.getByRole("searchbox");
      const [, request] = await Promise.all([type(TEXT), api.prompt(other, "text").then(() => api.request(other))]);
      await armed();
      assert.equal(await search.inputValue(), TEXT);
      assert.ok(request);
      assert.equal(await open(other), 1);
      await search.fill("");
      await search.press("Escape");
      assert.equal(await focused(), "message");
    });
  }

  test("after a message was sent, and with the queue", async () => {
    const id = await session();
    // The question arrives at once, before or after the response to the message.
    await type("args");
    await page.keyboard.press("Enter");
    await type(TEXT);
    await armed();
    assert.equal(await field(), TEXT);
    await page.keyboard.press("Enter");
    await chat.queued.filter({ hasText: "2 things" }).waitFor();
    await type("1 more");
    assert.equal(await field(), "1 more");
    assert.equal(await open(id), 1);
  });

  test("stays when the field of the start page becomes that of the session", async () => {
    await page.goto(`${gateway.origin}/#/`);
    await page.getByRole("heading", { name: "What should we work on?" }).waitFor();
    await page.waitForFunction(() => document.activeElement?.id === "message");
    await chat.chooseAgent(/forms/);
    await chat.message.focus();
    let respond;
    const held = new Promise((resolve) => (respond = resolve));
    await page.route("**/v1/sessions", async (route) => {
      if (route.request().method() !== "POST") return route.continue();
      const response = await route.fetch();
      await held;
      await route.fulfill({ response });
    });
    await type("text");
    await page.keyboard.press("Enter");
    await type(" and 2 things");
    respond();
    await page.waitForURL(/#\/s\/[0-9a-f-]+$/);
    await armed();
    await type(" more");
    assert.equal(await field(), " and 2 things more");
    await page.unroute("**/v1/sessions");
  });

  test("does not become a key after a sign-out from elsewhere", async () => {
    await session();
    await type("half a mess");
    await page.route("**/v1/**", (route) => route.fulfill({ status: 401, contentType: "application/problem+json", body: '{"type":"about:blank","title":"Unauthorized","status":401,"code":"unauthorized"}' }));
    await page.evaluate(() => dispatchEvent(new Event("online")));
    await page.keyboard.press("Enter");
    await page.getByLabel("Key or link").waitFor();
    await type("age");
    assert.equal(await page.getByLabel("Key or link").inputValue(), "");
    await page.unroute("**/v1/**");
    await page.goto("about:blank");
    await page.goto(gateway.link);
    await page.getByRole("heading", { name: "What should we work on?" }).waitFor();
  });
});

describe("on the card", () => {
  for (const size of [LAPTOP, PHONE]) {
    test(`letters and digits go to the message field without a move by keys: ${size.width} px`, async () => {
      const id = await session("forms", size);
      await api.prompt(id, "plain");
      await armed();
      if (size === PHONE) await page.getByRole("button", { name: "Show the question" }).click();
      for (const place of [chat.permission.locator(".permission-title"), command(), chat.permission.getByText("Raw input")]) {
        await page.locator("body").evaluate(() => document.activeElement.blur());
        if (size === PHONE && !(await place.isVisible())) await page.getByRole("button", { name: "Show the question" }).click();
        await place.click();
        await type("1 2 ok, 3");
        assert.equal(await field(), "1 2 ok, 3");
        assert.equal(await focused(), "message");
        await chat.message.fill("");
      }
      assert.equal(await open(id), 1);
    });
  }

  test("a digit answers after a move by keys, and the next question needs another move", async () => {
    const id = await session();
    await type("plain plain");
    await page.keyboard.press("Enter");
    await armed();
    await enter();
    await checkAccessibility(page);
    await screenshot(page, "approval-entered");
    await page.keyboard.press("1");
    await answered("plain: once.");
    await armed();
    await page.waitForFunction(() => document.activeElement?.id === "message");
    await type("1");
    assert.equal(await field(), "1");
    assert.equal(await open(id), 1);
  });

  test("letters after a move by keys go to the field, and so does the digit before them", async () => {
    const id = await session();
    await type("text");
    await page.keyboard.press("Enter");
    await armed();
    await enter();
    await type("then 2 spaces");
    assert.equal(await field(), "then 2 spaces");
    await chat.message.fill("");
    for (const text of [TEXT, "1 thing", "22 things", "12 things", "2nd: no"]) {
      await enter();
      await type(text);
      assert.equal(await field(), text);
      await chat.message.fill("");
    }
    assert.equal(await open(id), 1);
  });

  test("an answer that lasts, or with a risk, needs a second press", async () => {
    for (const [form, digit, words] of [["plain", "2", "plain: always."], ["text", "1", "text: once."], ["args", "1", "args: once."]]) {
      const id = await session();
      await type(form);
      await page.keyboard.press("Enter");
      await armed();
      await enter();
      await page.keyboard.press(digit);
      await page.getByRole("status").filter({ hasText: `Press ${digit} again` }).waitFor();
      await checkAccessibility(page);
      await screenshot(page, `approval-again-${form}`);
      assert.equal(await open(id), 1);
      await page.keyboard.press("Escape");
      await page.getByRole("status").filter({ hasText: "again" }).waitFor({ state: "detached" });
      await page.keyboard.press(digit);
      await page.getByRole("status").filter({ hasText: `Press ${digit} again` }).waitFor();
      await page.waitForTimeout(350);
      await page.keyboard.press(digit);
      await answered(words);
      await chat.ended("Finished");
    }
  });

  test("a refusal once needs one press", async () => {
    await session();
    await type("text");
    await page.keyboard.press("Enter");
    await armed();
    await enter();
    await page.keyboard.press("3");
    await answered("text: no.");
  });

  test("a key that is held is one press", async () => {
    const id = await session();
    await type("text");
    await page.keyboard.press("Enter");
    await armed();
    await enter();
    await page.keyboard.down("1");
    for (let repeats = 0; repeats < 20; repeats += 1) {
      await page.waitForTimeout(40);
      await page.keyboard.down("1");
    }
    await page.keyboard.up("1");
    assert.equal(await open(id), 1);
    await page.getByRole("status").filter({ hasText: "Press 1 again" }).waitFor();
  });
});

describe("an approval shows the whole command", () => {
  const WHOLE = {
    text: "rm -rf /home/x",
    list: "rm -rf /home/x",
    args: "rm -rf /home/x",
    input: "rm -rf /home/x",
    params: "rm -rf /home/x",
    json: "rm -rf /home/x",
    earlier: "rm -rf /home/x",
    env: "make all",
    long: `ls${"\n".repeat(60)}rm -rf /home/x`,
  };

  for (const [form, whole] of Object.entries(WHOLE)) {
    test(form, async () => {
      const id = await session();
      await api.prompt(id, form);
      await armed();
      assert.equal(await command().textContent(), whole);
      await chat.permission.locator(".risk").filter({ hasText: "Deletes files" }).waitFor();
      if (form === "env") await chat.permission.getByText("Sets CLEAN=rm -rf /home/x").waitFor();
      if (form === "long") await chat.permission.getByText("61 lines").waitFor();
      await checkAccessibility(page);
      await screenshot(page, `approval-form-${form}`);
    });
  }

  for (const form of ["unknown", "bare"]) {
    test(`${form}: as raw input, which is open`, async () => {
      const id = await session();
      await api.prompt(id, form);
      await armed();
      const raw = chat.permission.getByRole("group", { name: "Raw input" });
      assert.equal(await raw.isVisible(), true);
      assert.match(await raw.textContent(), /rm -rf \/home\/x/);
      await chat.permission.locator(".risk").filter({ hasText: "Deletes files" }).waitFor();
      await checkAccessibility(page);
      await screenshot(page, `approval-form-${form}`);
    });
  }

  test("with every risk, and with the kind of each option", async () => {
    const id = await session();
    await api.prompt(id, "several");
    await armed();
    const risks = ["Deletes files", "Overwrites a remote branch", "Runs a program from the network", "Runs with the rights of root"];
    assert.deepEqual((await chat.permission.locator(".risk").allTextContents()).map((risk) => risk.trim()).sort(), risks);
    assert.equal(await chat.permission.locator(".primary").count(), 0);
    assert.deepEqual(await chat.permission.locator(".permission-options button").evaluateAll((all) => all.map((one) => one.innerText.replaceAll(/\s+/g, " "))), ["1 Yes Allow once", "2 Always allow in this session", "3 No Reject once"]);
    await checkAccessibility(page);
    await screenshot(page, "approval-several");
    await page.setViewportSize(PHONE);
    await page.getByRole("button", { name: "Show the question" }).click();
    await checkAccessibility(page);
    await screenshot(page, "approval-several-phone");
    await page.setViewportSize(LAPTOP);

    // The inbox shows the same, but for a call that is in the conversation alone.
    const other = await session("forms", LAPTOP, true);
    await api.prompt(other, "earlier");
    await armed();
    await page.goto(`${gateway.origin}/#/inbox`);
    const entry = page.locator(".inbox-entry").filter({ has: page.locator(`a[href$="${id}"]`) });
    await entry.getByText("Overwrites a remote branch").waitFor();
    assert.equal(await entry.getByRole("group", { name: "Command", exact: true }).count(), 1);
    const hidden = page.locator(".inbox-entry").filter({ has: page.locator(`a[href$="${other}"]`) });
    await hidden.getByText("Open the session to see the whole call").waitFor();
    assert.equal(await hidden.getByRole("button").count(), 0);
    await checkAccessibility(page);
  });

  test("the demo agent's, before it runs and in the request for its terminal", async () => {
    await session("demo");
    await chat.send("/run rm -rf imaginary 'a b'");
    await armed();
    assert.equal(await command().textContent(), 'rm -rf imaginary "a b"');
    await chat.permission.locator(".risk").filter({ hasText: "Deletes files" }).waitFor();
    await option("Allow once").and(page.locator('[aria-disabled="false"]')).click();
    const group = chat.question.getByRole("group", { name: "Command" });
    await group.waitFor();
    assert.equal(await group.textContent(), 'rm -rf imaginary "a b"');
    await chat.question.locator(".risk").filter({ hasText: "Deletes files" }).waitFor();
    await chat.question.getByText("Sets ACP_DEMO=1").waitFor();
    await checkAccessibility(page);
    await screenshot(page, "approval-terminal");
  });
});
