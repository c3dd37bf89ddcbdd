// Two users: alice shares a session, bob reads and prompts as far as alice permits, and alice takes the access back.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Api } from "./support/api.mjs";
import { checkAccessibility, launch, pictures, Watch } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { Gateway } from "./support/gateway.mjs";

const SCOPES = "read,prompt,approve,files";
const TITLE = "The roof of the shed";

let browser;
let gateway;
let session;
let alice;
let bob;

before(async () => {
  browser = await launch();
  gateway = await Gateway.start();
  [alice, bob] = await Promise.all(["alice", "bob"].map(user));
  session = await alice.api.session("demo", { title: TITLE });
  await bob.api.session("demo", { title: "A session of bob" });
  await alice.open();
  await bob.open();
});
after(async () => {
  await browser?.close();
  await gateway?.end();
});

async function user(name) {
  const key = await gateway.key(name, SCOPES);
  const api = new Api(`${gateway.origin}/#key=${key}`);
  const watch = await Watch.page(browser, gateway.origin, { colorScheme: "light", viewport: { width: 1440, height: 900 }, reducedMotion: "reduce", allowFailedRequests: true });
  const { page } = watch;
  const open = async () => {
    await page.goto(`${gateway.origin}/#key=${key}`);
    await page.getByRole("heading", { name: "What should we work on?" }).waitFor();
  };
  const sharedWithMe = page.getByRole("region", { name: "Shared with me" });
  return { api, watch, page, open, chat: new Chat(page), sharedWithMe, key };
}

const menu = ({ page }) => page.getByRole("button", { name: "More about this session" });
const level = (dialog, name) => dialog.getByRole("combobox", { name: `Access of ${name}` });
/** As `PUT` of a grant outside of the page. */
const give = (grantee, access) => alice.api.call("PUT", `sessions/${session}/grants/${grantee}`, { access });

const granted = async () => (await alice.api.call("GET", `sessions/${session}/grants`)).grants.map(({ grantee, access }) => [grantee, access]);

/** Repeats a request until the gateway accepts it. */
async function until(request) {
  const deadline = Date.now() + 30_000;
  for (;;) {
    try {
      return await request();
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

/** The page reads the access again when a person returns to its window. */
const returns = ({ page }) => page.evaluate(() => dispatchEvent(new Event("focus")));

test("alice shares a session with the keyboard alone, and errors are shown at the field", async () => {
  const { page, chat } = alice;
  await page.goto(`${gateway.origin}/#/s/${session}`);
  await chat.message.waitFor();
  assert.equal(await page.getByText(/^Shared by/).count(), 0, "it is a session of alice");
  await menu(alice).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Share…" }).focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Share this session" });
  const field = dialog.getByRole("textbox", { name: "Name" });
  await field.waitFor();
  assert.equal(await field.evaluate((input) => input === document.activeElement), true);
  await dialog.getByText("alice (you)").waitFor();

  for (const [name, problem] of [["mallory", /no user “mallory”/], ["alice", "alice owns the session."], ["bob smith", /only letters/]]) {
    await field.fill(name);
    await page.keyboard.press("Enter");
    await dialog.getByRole("alert").filter({ hasText: problem }).waitFor();
    const description = await field.getAttribute("aria-describedby");
    assert.match(await page.locator(`[id="${description}"]`).textContent(), problem instanceof RegExp ? problem : new RegExp(problem));
    assert.equal(await field.evaluate((input) => input === document.activeElement), true);
  }
  await pictures(page, "share-problem");

  await field.fill("bob");
  await page.keyboard.press("Enter");
  await level(dialog, "bob").waitFor();
  assert.equal(await level(dialog, "bob").inputValue(), "read");
  assert.equal(await field.inputValue(), "");
  assert.equal(await dialog.getByRole("alert").count(), 0);
  await dialog.getByRole("status").filter({ hasText: "bob: Can read" }).waitFor({ state: "attached" });

  // All users of the tenant, and back.
  await level(dialog, "All users of default").selectOption("Can send messages");
  await dialog.getByRole("status").filter({ hasText: "All users of default: Can send messages" }).waitFor({ state: "attached" });
  assert.deepEqual(await granted(), [["user:bob", "read"], ["tenant", "prompt"]]);
  await pictures(page, "share");
  await level(dialog, "All users of default").selectOption("No access");
  await dialog.getByRole("status").filter({ hasText: "All users of default: No access" }).waitFor({ state: "attached" });

  // A group of which bob is a member. The gateway reads its users once a second.
  await gateway.command("user", "update", "bob", "--groups", "team");
  await until(() => give("group:team", "read"));
  await alice.api.call("DELETE", `sessions/${session}/grants/group:team`);
  await dialog.getByRole("combobox", { name: "Share with" }).selectOption("A group");
  await field.fill("nobody");
  await page.keyboard.press("Enter");
  await dialog.getByRole("alert").filter({ hasText: "There is no group “nobody”" }).waitFor();
  await field.fill("team");
  await page.keyboard.press("Enter");
  await level(dialog, "Group team").selectOption("Can answer requests");
  await dialog.getByRole("status").filter({ hasText: "Group team: Can answer requests" }).waitFor({ state: "attached" });
  assert.deepEqual(await granted(), [["user:bob", "read"], ["group:team", "approve"]]);
  await pictures(page, "share-group");
  await dialog.getByRole("button", { name: "Remove Group team" }).click();
  await level(dialog, "Group team").waitFor({ state: "detached" });
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(await menu(alice).evaluate((button) => button === document.activeElement), true);
});

test("bob finds the session, reads it, and gets no action that the gateway would refuse", async () => {
  const { page, chat, sharedWithMe } = bob;
  const link = sharedWithMe.getByRole("link");
  await link.filter({ hasText: TITLE }).waitFor();
  assert.match(await link.textContent(), /alice · /);
  assert.equal(await page.getByRole("region", { name: "Today" }).getByRole("link").filter({ hasText: TITLE }).count(), 0);
  assert.equal(await alice.sharedWithMe.count(), 0);

  await alice.chat.send("/permission");
  await alice.chat.permission.waitFor();
  await link.click();
  await chat.permission.waitFor();
  await page.getByText("Shared by alice: you can read").waitFor();
  await page.getByText("Your access to this session does not include messages.").waitFor();
  await page.getByText("Your access to this session does not include answers.").waitFor();
  assert.equal(await chat.message.count(), 0);
  assert.equal(await chat.permission.getByRole("button", { name: /Allow|Reject/ }).count(), 0);
  assert.equal(await page.getByRole("button", { name: "Stop" }).count(), 0);
  assert.equal(await page.getByRole("button", { name: "Edit and send again" }).count(), 0);
  assert.equal(await sharedWithMe.locator(".session-actions").count(), 0);
  assert.ok((await page.getByRole("region", { name: "Today" }).locator(".session-actions").count()) > 0, "those of the session of bob");
  await pictures(page, "shared-read");
  await menu(bob).click();
  await page.getByRole("button", { name: "Download as JSON" }).waitFor();
  for (const name of ["Share…", "Rename", "Fork", "New conversation", "Close the session", "Error output of the agent"])
    assert.equal(await page.getByRole("group", { name: "This session" }).getByRole("button", { name, exact: true }).count(), 0, name);
  await page.getByRole("button", { name: "People with access" }).click();
  const dialog = page.getByRole("dialog", { name: "People with access" });
  await dialog.getByText("bob (you)").waitFor();
  assert.equal(await dialog.getByRole("combobox").count() + (await dialog.getByRole("textbox").count()), 0);
  assert.deepEqual(await dialog.getByRole("listitem").allTextContents(), ["aliceOwner", "bob (you)Can read"]);
  await pictures(page, "people");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Alt+p");
  await page.getByRole("tab", { name: "Changes" }).waitFor();
  await page.keyboard.press("Alt+p");
});

test("more access appears in the open page at once, and bob prompts and answers", async () => {
  const { page, chat } = bob;
  await give("user:bob", "prompt");
  await returns(bob);
  await page.getByText("Shared by alice: you can send messages").waitFor();
  await chat.message.waitFor();
  assert.equal(await chat.permission.getByRole("button", { name: /Allow|Reject/ }).count(), 0);
  await page.getByText("Your access to this session does not include answers.").waitFor();
  await give("user:bob", "approve");
  await returns(bob);
  await page.getByText("Shared by alice: you can answer requests").waitFor();
  await chat.permission.getByRole("button", { name: /Reject/ }).first().click();
  await chat.permission.waitFor({ state: "detached" });
  await chat.ended("Finished");
  await chat.send("/help");
  await chat.ended("Finished");
  await alice.chat.turns.nth(1).waitFor();
  await checkAccessibility(page);
  await menu(bob).click();
  await page.getByRole("button", { name: "New conversation" }).waitFor();
  for (const name of ["Rename", "Fork"]) assert.equal(await page.getByRole("group", { name: "This session" }).getByRole("button", { name, exact: true }).count(), 0, name);
  await page.keyboard.press("Escape");
  await assert.rejects(bob.api.call("DELETE", `sessions/${session}`), /403/);
  assert.equal((await bob.api.call("GET", "sessions")).sessions.length, 1, "the session of alice is in the other list");
});

test("with full access, bob may rename, delete and share the session", async () => {
  const { page, sharedWithMe } = bob;
  await give("user:bob", "own");
  await returns(bob);
  await page.getByText("Shared by alice: you have full access").waitFor();
  await sharedWithMe.hover();
  assert.equal(await sharedWithMe.locator(".session-actions").count(), 1);
  await menu(bob).click();
  await page.getByRole("button", { name: "Share…" }).waitFor();
  await page.keyboard.press("Escape");
});

test("bob gets less access in the open page, and keeps the entry", async () => {
  await give("user:bob", "read");
  await returns(bob);
  await bob.page.getByText("Shared by alice: you can read").waitFor();
  await bob.chat.message.waitFor({ state: "detached" });
  assert.equal(await bob.sharedWithMe.locator(".session-actions").count(), 0);
});

test("alice takes the access back: the page of bob says so, and the entry disappears", async () => {
  const { page, sharedWithMe } = bob;
  await menu(alice).click();
  await alice.page.getByRole("button", { name: "Share…" }).click();
  const dialog = alice.page.getByRole("dialog", { name: "Share this session" });
  await dialog.getByRole("button", { name: "Remove bob" }).press("Enter");
  await level(dialog, "bob").waitFor({ state: "detached" });
  assert.equal(await dialog.getByRole("textbox", { name: "Name" }).evaluate((input) => input === document.activeElement), true);
  await alice.page.keyboard.press("Escape");

  await page.getByRole("alert").filter({ hasText: "You no longer have access to this session, or it was deleted." }).waitFor();
  await sharedWithMe.waitFor({ state: "detached" });
  assert.equal(await page.getByText(/^Shared by/).count(), 0);
  assert.equal(await menu(bob).count(), 0);
  assert.equal(await bob.chat.message.count(), 0);
  await page.getByRole("link", { name: "Start a new session" }).waitFor();
  await pictures(page, "share-lost");
});

test("a page whose session is shared again shows it again", async () => {
  await give("tenant", "prompt");
  await bob.page.getByText("Shared by alice: you can send messages").waitFor();
  await bob.chat.message.waitFor();
  await bob.sharedWithMe.getByRole("link").filter({ hasText: TITLE }).waitFor();
  await alice.watch.close();
  await bob.watch.close();
});
