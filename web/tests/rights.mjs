// What the page offers to keys with few scopes and for sessions that are not there, and how long it keeps a key.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Api } from "./support/api.mjs";
import { checkAccessibility, launch, screenshot, Watch } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { Gateway } from "./support/gateway.mjs";

let browser;
let gateway;
let api;
let session;

before(async () => {
  browser = await launch();
  gateway = await Gateway.start();
  api = new Api(await gateway.adminLink());
  session = await api.session("demo");
});
after(async () => {
  await browser?.close();
  await gateway?.end();
});

/** The page with a key of the same principal that has these scopes. */
async function open(scopes, path = "/") {
  const key = await gateway.key("ada", scopes);
  const watch = await Watch.page(browser, gateway.origin, { colorScheme: "light", viewport: { width: 1440, height: 900 }, allowFailedRequests: true });
  await watch.page.goto(`${gateway.origin}/#key=${key}`);
  await watch.page.getByRole("heading").first().waitFor();
  await watch.page.goto(`${gateway.origin}/#${path}`);
  return { watch, page: watch.page, chat: new Chat(watch.page), key };
}

test("a key that only reads gets no composer and no button that the gateway would refuse", async () => {
  await api.prompt(session, "/permission");
  const request = await api.request(session);
  await api.prompt(session, "the next message");
  const { watch, page, chat } = await open("read", `/s/${session}`);
  await chat.permission.waitFor();
  await page.getByText("This key may not send messages.").waitFor();
  await page.getByText("This key may not answer requests of agents.").waitFor();
  assert.equal(await chat.message.count(), 0);
  assert.equal(await page.getByRole("button", { name: "Stop" }).count(), 0);
  const answers = chat.permission.getByRole("button");
  assert.ok((await answers.count()) >= 2);
  for (const answer of await answers.all()) assert.equal(await answer.isDisabled(), true);
  await page.keyboard.press("1");
  await chat.queued.first().waitFor();
  assert.equal(await chat.queued.getByRole("button", { name: /Remove|Edit|Send/ }).count(), 0);
  assert.equal(await page.getByRole("button", { name: "Edit and send again" }).count(), 0);
  assert.equal(await page.getByRole("link", { name: "New session" }).count(), 0);
  assert.equal(await page.locator(".session-actions").count(), 0);
  await page.getByRole("button", { name: "More about this session" }).click();
  await page.getByRole("button", { name: "Download as JSON" }).waitFor();
  for (const name of ["Rename", "Fork", "Close the session"]) assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name);
  await page.keyboard.press("Escape");
  await page.keyboard.press("Alt+p");
  await page.getByRole("tab", { name: "Plan" }).waitFor();
  assert.deepEqual(await page.getByRole("tab").allTextContents(), ["Plan", "Terminals", "Events"]);
  await checkAccessibility(page);
  await screenshot(page, "rights-read-light");

  await page.goto(`${gateway.origin}/#/inbox`);
  await page.getByText("This key may not answer requests of agents.").waitFor();
  assert.equal(await page.locator(".inbox-entry").count(), 1);
  assert.equal(await page.locator(".inbox-entry").getByRole("button").count(), 0);
  await checkAccessibility(page);

  await page.goto(`${gateway.origin}/#/`);
  await page.getByRole("heading", { name: "This key may not start sessions." }).waitFor();
  assert.equal(await page.getByRole("textbox", { name: "First message" }).count(), 0);
  await checkAccessibility(page);
  await screenshot(page, "rights-start-light");
  assert.equal(await api.request(session), request, "nothing was answered");
  await api.call("POST", `sessions/${session}/cancel`);
  await watch.close();
});

test("a key without the scopes for options and files writes messages without them", async () => {
  const { watch, page, chat } = await open("read,prompt", `/s/${session}`);
  await chat.message.waitFor();
  await page.getByPlaceholder("Write a message, / for commands", { exact: true }).waitFor();
  assert.equal(await page.getByLabel("Mode").count(), 0);
  await chat.send("/help");
  await chat.ended("Finished");
  await checkAccessibility(page);
  await watch.close();
});

test("a session that does not exist is not shown as a new one", async () => {
  const { watch, page } = await open("read,prompt,approve,files", "/s/01890000-0000-7000-8000-000000000000");
  await page.getByRole("heading", { name: "Session not found" }).waitFor();
  await page.getByRole("alert").waitFor();
  assert.equal(await page.getByText(/Ready|is ready/).count(), 0);
  assert.match(await page.title(), /Session not found/);
  await checkAccessibility(page);
  await screenshot(page, "missing-session-light");
  await watch.close();
});

test("a person who came by a link can keep the key, and a new tab does not ask for it", async () => {
  const { watch, page, key } = await open("read,prompt,approve,files");
  const settings = (of) => of.getByRole("button", { name: "Settings" }).click();
  const keep = (of) => of.getByRole("checkbox", { name: /^Keep the key on this device/ });
  const asked = await watch.newPage();
  await asked.goto(gateway.origin);
  await asked.getByLabel("Key or link").waitFor();

  await settings(page);
  assert.equal(await keep(page).isChecked(), false);
  await keep(page).check();
  await checkAccessibility(page);
  await screenshot(page, "keep-key-light");
  const fresh = await watch.newPage();
  await fresh.goto(gateway.origin);
  await fresh.getByRole("heading", { name: "What should we work on?" }).waitFor();
  assert.equal(await fresh.evaluate(() => localStorage.getItem("acp-gateway.key")), key);

  await settings(fresh);
  await keep(fresh).uncheck();
  const again = await watch.newPage();
  await again.goto(gateway.origin);
  await again.getByLabel("Key or link").waitFor();
  assert.equal(await again.evaluate(() => localStorage.getItem("acp-gateway.key")), null);
  await watch.close();
});
