// What agents ask and show beyond words and permissions, on the page in a real browser: the demo agent plays all of it.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { checkAccessibility, launch, screenshot, Watch } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { Gateway } from "./support/gateway.mjs";

const CONFIG = `
[agents.served]
builtin = "demo"
files = "gateway"
terminals = "gateway"

[agents.asking]
builtin = "demo"
files = "client"
terminals = "client"

[agents.locked]
builtin = "demo"
terminal_auth = true
env = { ACP_DEMO_SIGN_IN = "required" }
`;

let browser;
let gateway;
before(async () => {
  browser = await launch();
  gateway = await Gateway.start({ config: CONFIG });
});
after(async () => {
  await browser?.close();
  await gateway?.end();
});

/** A new session of this agent, at its quickest. */
async function open(agent, options) {
  const watch = await Watch.page(browser, gateway.origin, options);
  const { page } = watch;
  await page.goto(gateway.link);
  const chat = new Chat(page);
  await chat.start(agent);
  await chat.set("Pace", "instant");
  return { watch, page, chat };
}

/** The same in both colours, and on a small screen. */
async function pictures(page, name) {
  await checkAccessibility(page);
  await screenshot(page, `${name}-light`);
  await page.emulateMedia({ colorScheme: "dark" });
  await checkAccessibility(page);
  await screenshot(page, `${name}-dark`);
  const size = page.viewportSize();
  await page.setViewportSize({ width: 390, height: 800 });
  await page.evaluate(() => Promise.all(document.getAnimations().filter((one) => one instanceof CSSTransition).map((one) => one.finished.catch(() => undefined))));
  await screenshot(page, `${name}-small`);
  await page.setViewportSize(size);
  await page.emulateMedia({ colorScheme: "light" });
}

describe("a form", () => {
  test("is filled in by the keyboard, and what is wrong with it stands at its field", async () => {
    const { watch, page, chat } = await open(/served/, { allowFailedRequests: true });
    await chat.send("/form");
    await chat.question.waitFor();
    assert.equal(await chat.message.evaluate((field) => field === document.activeElement), true);
    await pictures(page, "form");
    assert.equal(await page.getByLabel("Colour").inputValue(), "green");
    assert.equal(await page.getByLabel("Music").isChecked(), true);

    await page.getByRole("button", { name: "Send", exact: true }).and(page.locator('[aria-disabled="false"]')).waitFor();
    await page.getByLabel("Guests").press("Enter");
    await page.getByText("This is needed.").waitFor();
    await page.waitForFunction(() => document.activeElement?.labels?.[0]?.textContent.startsWith("Your name"));
    await page.keyboard.type("Ada <b>");
    await page.getByLabel("Code").fill("abc");
    await page.getByLabel("Guests").fill("99");
    await page.getByLabel("E-mail").fill("nobody");
    await page.keyboard.press("Enter");
    await page.getByText("3 fields need another look.").waitFor();
    const wrong = await page.locator("[aria-invalid=true]").evaluateAll((all) => all.map((one) => one.labels[0].textContent));
    assert.deepEqual(wrong.sort(), ["Code", "E-mail", "Guests (needed)"]);
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-invalid")), "true");
    await pictures(page, "form-wrong");

    await page.getByLabel("Code").fill("ABC-123");
    await page.getByLabel("Guests").fill("3");
    await page.getByLabel("E-mail").fill("ada@example.org");
    await page.getByLabel("Birthday").fill("1815-12-10");
    await page.getByLabel("Begins at").fill("2026-12-10T18:30");
    await page.getByLabel("Size").selectOption("m");
    await page.getByLabel("olives").check();
    await page.getByLabel("Music").uncheck();
    await page.getByLabel("Guests").press("Enter");
    await chat.ended("Finished");
    const said = await chat.answer.textContent();
    for (const part of ["Ada <b>", "ABC-123", "1815-12-10", "“guests”: 3", "“music”: no", "“size”: “m”", "olives"]) {
      assert.ok(said.includes(part), `${part} is not in ${said}`);
    }
    await chat.lastTurn.locator(".request-line").filter({ hasText: "accepted by" }).waitFor();
    await watch.close();
  });

  test("may be declined and dismissed", async () => {
    const { watch, page, chat } = await open(/served/);
    for (const [button, line] of [["Decline", "declined by"], ["Dismiss", "dismissed by"]]) {
      await chat.send("/form short");
      await chat.question.getByRole("button", { name: button }).and(page.locator('[aria-disabled="false"]')).click();
      await chat.lastTurn.locator(".request-line").filter({ hasText: line }).waitFor();
      await chat.ended("Finished");
    }
    await watch.close();
  });
});

test("a page is opened by a press and by nothing else, and its host is said", async () => {
  const { watch, page, chat } = await open(/served/);
  await chat.send("/link");
  await chat.question.waitFor();
  assert.equal(await chat.question.locator(".link-host").textContent(), "example.com");
  const link = chat.question.getByRole("link", { name: "Open the page" });
  assert.equal(await link.getAttribute("rel"), "noopener noreferrer");
  assert.equal(await link.getAttribute("target"), "_blank");
  await pictures(page, "link");
  await watch.context.route("https://example.com/**", (route) => route.fulfill({ body: "there" }));
  await chat.question.locator('a[aria-disabled="false"]').waitFor();
  const [opened] = await Promise.all([watch.context.waitForEvent("page"), link.click()]);
  await opened.waitForLoadState();
  assert.match(opened.url(), /^https:\/\/example\.com\/demo\?for=page-/);
  assert.equal(await opened.evaluate(() => window.opener), null);
  await opened.close();
  await chat.lastTurn.locator(".request-line").filter({ hasText: /accepted by .*, and done/ }).waitFor();
  await chat.ended("Finished");
  await watch.close();
});

test("what the page has no form for is shown whole, and answered or refused", async () => {
  const { watch, page, chat } = await open(/asking/, { allowFailedRequests: true });
  await chat.send("/read notes.txt 3");
  await chat.question.waitFor();
  assert.match(await chat.question.locator("pre").textContent(), /"path": ".*notes\.txt",\s*"line": 3/);
  await pictures(page, "other");
  const result = page.getByLabel("The result, as JSON");
  const ready = page.locator('.question button[aria-disabled="false"]').first();
  await ready.waitFor();
  await result.fill("{");
  await page.getByRole("button", { name: "Send the result" }).click();
  await page.getByText("This is not JSON.").waitFor();
  await result.fill('{ "content": 5 }');
  await page.getByRole("button", { name: "Send the result" }).click();
  await page.locator(".dock-problem").waitFor();
  await result.fill('{ "content": "a\\nb" }');
  await page.getByRole("button", { name: "Send the result" }).click();
  await chat.ended("Finished");
  assert.match(await chat.answer.textContent(), /3 characters here, and 2 lines/);

  await chat.send("/ext");
  await chat.question.waitFor();
  await ready.waitFor();
  await page.getByRole("button", { name: "Refuse" }).click();
  await chat.lastTurn.locator(".request-line").filter({ hasText: "refused by" }).waitFor();
  await chat.ended("Finished");
  await watch.close();
});

test("a command's output grows in its terminal, and a long one shows its end", async () => {
  const { watch, page, chat } = await open(/served/);
  await page.getByLabel("Mode").selectOption("auto");
  await page.waitForFunction(() => [...document.querySelectorAll(".option select")].some((one) => one.value === "auto"));
  await chat.send("/run sh -c 'printf \"\\033[31mred\\033[0m\\n\"; seq 1 40; exit 3'");
  await chat.ended("Finished");
  const terminal = chat.lastTurn.locator(".terminal");
  assert.equal(await terminal.count(), 1);
  assert.equal(await terminal.locator("figcaption > span").textContent(), "exit 3");
  assert.match(await terminal.locator("pre").textContent(), /^27\n28\n/);
  await pictures(page, "terminal");
  await terminal.getByRole("button", { name: "Show 27 earlier lines" }).click();
  assert.match(await terminal.locator("pre").textContent(), /^red\n1\n2\n/);
  assert.match(await chat.answer.textContent(), /exit code 3/);
  const shown = await chat.transcript();
  await page.reload();
  await chat.ended("Finished");
  assert.equal((await chat.transcript()).length > shown.length / 2, true);
  await watch.close();
});

test("plans with names, notices, compactions and subagents have their place", async () => {
  const { watch, page, chat } = await open(/served/);
  await chat.send("/plans");
  await chat.ended("Finished");
  assert.equal(await chat.lastTurn.locator(".plan").count(), 2);
  await chat.lastTurn.locator(".plan").filter({ hasText: "A plan may be a text too." }).waitFor();
  await chat.send("/notice warning");
  await chat.lastTurn.locator(".note-warning").filter({ hasText: "The demo warns you" }).waitFor();
  await chat.ended("Finished");
  await chat.send("/compact");
  await chat.ended("Finished");
  await chat.lastTurn.locator("summary").filter({ hasText: "summed up" }).click();
  await chat.lastTurn.getByText("So far there were").waitFor();
  await chat.send("/compact fail");
  await chat.lastTurn.locator(".note-error").filter({ hasText: "no model" }).waitFor();
  await chat.ended("Finished");
  await chat.send("/subagent");
  await chat.ended("Finished");
  const subagent = chat.lastTurn.locator(".subagent");
  assert.equal(await subagent.locator(":scope > summary .tool-status").textContent(), "done");
  assert.equal(await chat.lastTurn.locator(".from-agent").filter({ hasText: "second line" }).isVisible(), false);
  await subagent.locator(":scope > summary").click();
  await subagent.getByRole("group", { name: "Scout" }).getByText("Search for").waitFor();
  assert.match(await subagent.locator(".from-agent").textContent(), /^The greeting is made in src\/greeting.rs, in the second line\./);
  await pictures(page, "subagent");
  const shown = await chat.transcript();
  await page.reload();
  await chat.ended("Finished");
  await chat.sameAs(shown);
  await chat.send("/withdraw 1");
  await chat.lastTurn.locator(".request-line").filter({ hasText: "withdrawn by the agent" }).waitFor();
  await chat.ended("Finished");
  assert.equal(await chat.permission.count(), 0);
  await watch.close();
});

describe("an agent that wants a sign-in", () => {
  async function locked(link) {
    const watch = await Watch.page(browser, gateway.origin, { allowFailedRequests: true });
    const { page } = watch;
    await page.goto(link);
    await new Chat(page).chooseAgent(/locked/);
    await page.getByRole("button", { name: "Start session" }).click();
    await page.getByRole("list", { name: "Ways to sign in" }).waitFor();
    return { watch, page };
  }

  test("says how, and who may do it", async () => {
    const { watch, page } = await locked(gateway.link);
    await page.getByText("With an admin key you could sign in here.").waitFor();
    assert.equal(await page.getByRole("button", { name: /Sign in/ }).count(), 0);
    await pictures(page, "sign-in-needed");
    await watch.close();
  });

  test("lets an admin in, at a terminal", async () => {
    const { watch, page } = await locked(await gateway.adminLink());
    await page.getByRole("button", { name: "Sign in at a terminal" }).click();
    await page.getByRole("log", { name: "What the agent says" }).filter({ hasText: 'Type the word "sesame"' }).waitFor();
    await page.getByLabel("What you type").fill("simsim");
    await page.keyboard.press("Enter");
    await page.getByText("That is not the word.").waitFor();
    await pictures(page, "sign-in-terminal");
    await page.getByLabel("What you type").fill("sesame");
    await page.keyboard.press("Enter");
    await page.getByText("Signed in. Try again").waitFor();
    await page.getByRole("button", { name: "Start session" }).click();
    await page.waitForURL(/#\/s\/[0-9a-f-]+$/);
    await watch.close();
  });
});
