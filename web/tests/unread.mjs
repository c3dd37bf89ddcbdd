// What happened while a person was away: unread sessions, the place of new turns, the state of failed sessions and
// notifications.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Api } from "./support/api.mjs";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";

const agent = fileURLToPath(new URL("support/terse_agent.mjs", import.meta.url));
const { page, chat, link, gateway } = await oneChat({ config: `[agents.demo]\nbuiltin = "demo"\n${nodeAgent("terse", agent)}`, agent: /demo/, link: (started) => started.adminLink(), viewport: { width: 1280, height: 800 } });
const api = new Api(link);
const here = page.url().split("/").at(-1);
const row = (words) => page.getByRole("listitem").filter({ hasText: words });

async function ended(session, promptId) {
  await api.call("GET", `sessions/${session}/prompts/${promptId}`, undefined, { Prefer: "wait=20" });
}

test("a session takes its title from its first message", async () => {
  await chat.send("/about this session");
  await chat.ended("Finished");
  await row("/about this session").waitFor();
  assert.equal(await page.locator("h1.bar-title").textContent(), "/about this session");
});

test("a session with activity elsewhere is unread until it is opened, and marks its new turns", async () => {
  await page.getByRole("link", { name: "New session" }).click();
  await page.getByRole("button", { name: /^Agent:/ }).waitFor();
  await ended(here, await api.prompt(here, "/about"));
  await row("(new)").filter({ hasText: "/about this session" }).waitFor();
  await checkAccessibility(page);
  await screenshot(page, "unread-light");
  await row("/about this session").getByRole("link").click();
  const mark = page.getByText(/^New since /);
  await mark.waitFor();
  assert.equal(await mark.evaluate((found) => found.nextElementSibling.textContent.includes("You wrote: /about")), true);
  await screenshot(page, "new-since-light");
  await row("(new)").waitFor({ state: "detached" });
  await chat.send("/about again");
  await chat.ended("Finished");
  assert.equal(await mark.evaluate((found) => found.nextElementSibling.textContent.includes("You wrote: /about again")), false);
  await page.reload();
  await chat.turns.nth(2).waitFor();
  assert.equal(await mark.count(), 0);
});

test("the list shows a failed session", async () => {
  const failed = await api.session("terse");
  await ended(failed, await api.prompt(failed, "break it"));
  await row("break it").filter({ hasText: /Failed · just now · terse/ }).waitFor();
  await screenshot(page, "failed-session-light");
});

test("notifications name the session that asks or has ended, while nobody looks", async () => {
  await page.context().grantPermissions(["notifications"], { origin: gateway.origin });
  await page.evaluate(() => {
    window.notices = [];
    document.hasFocus = () => true;
    window.Notification = class {
      static permission = "default";
      static async requestPermission() {
        return (this.permission = "granted");
      }
      constructor(title, { body, tag }) {
        window.notices.push([title, body, tag]);
      }
    };
  });
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Notify me" }).click();
  await page.getByRole("button", { name: "Notifications on" }).waitFor();
  await page.keyboard.press("Escape");
  const asks = await api.session("terse");
  await page.waitForFunction((count) => document.querySelectorAll(".session-row").length === count, 3);
  await ended(here, await api.prompt(here, "/about while one looks"));
  await page.getByText("/about while one looks").first().waitFor();
  await chat.ended("Finished");
  // The list has the end of the turn before the page is hidden.
  const { lastActivityAt } = await api.call("GET", `sessions/${here}`);
  await page.waitForFunction((end) => document.querySelector(".session-row.current time").dateTime >= end, lastActivityAt);
  assert.deepEqual(await page.evaluate(() => window.notices), []);
  await page.evaluate(() => Object.defineProperty(document, "hidden", { configurable: true, get: () => true }));
  await api.prompt(asks, "run");
  await api.request(asks);
  await ended(here, await api.prompt(here, "/about unseen"));
  await page.waitForFunction(() => window.notices.length === 2);
  assert.deepEqual((await page.evaluate(() => window.notices)).sort(), [
    ["/about this session", "Finished · demo", here],
    ["run", "Waits for your answer · terse", asks],
  ]);
  await page.evaluate(() => delete document.hidden);
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Notifications on" }).click();
  await page.getByRole("button", { name: "Notify me" }).waitFor();
});

test("a service worker shows notifications where the page itself cannot, as on phones", async () => {
  await page.evaluate(() => {
    window.Notification = class {
      static permission = "granted";
      static requestPermission = async () => "granted";
      constructor() {
        throw new TypeError("Illegal constructor");
      }
    };
    // A browser without a screen may remove a notification at once.
    window.shown = [];
    const { showNotification } = ServiceWorkerRegistration.prototype;
    ServiceWorkerRegistration.prototype.showNotification = async function (title, options) {
      await showNotification.call(this, title, options);
      window.shown.push({ title, ...options });
    };
  });
  await page.getByRole("button", { name: "Notify me" }).click();
  await page.getByRole("button", { name: "Notifications on" }).waitFor();
  await page.keyboard.press("Escape");
  await page.evaluate(() => Object.defineProperty(document, "hidden", { configurable: true, get: () => true }));
  await ended(here, await api.prompt(here, "/about on a phone"));
  await page.waitForFunction(() => window.shown.length > 0);
  assert.deepEqual(await page.evaluate(() => window.shown), [{ title: "/about this session", body: "Finished · demo", tag: here, data: `${gateway.origin}/#/s/${here}` }]);
  await page.evaluate(() => delete document.hidden);
});
