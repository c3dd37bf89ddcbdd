// A person manages the own keys: makes one with few rights, rotates and revokes keys, also the key of the page.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Api } from "./support/api.mjs";
import { launch, pictures, Watch } from "./support/browser.mjs";
import { Gateway } from "./support/gateway.mjs";

const SCOPES = "read,prompt,approve";
const SECRET = /^acpg_\S{20,}$/;
const DAY_MS = 86_400_000;

let browser;
let gateway;
before(async () => {
  browser = await launch();
  gateway = await Gateway.start();
});
after(async () => {
  await browser?.close();
  await gateway?.end();
});

/** The page with this key. */
async function open(key) {
  const watch = await Watch.page(browser, gateway.origin, { colorScheme: "light", viewport: { width: 1440, height: 900 }, reducedMotion: "reduce", allowFailedRequests: true });
  await watch.context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const { page } = watch;
  await page.goto(`${gateway.origin}/#key=${key}`);
  await page.getByText(/^Signed in as/).waitFor();
  return { watch, page, dialog: page.getByRole("dialog") };
}

const settings = (page) => page.getByRole("button", { name: "Settings" });
const row = (dialog, name) => dialog.getByRole("listitem").filter({ has: dialog.page().getByText(name, { exact: true }) });
const answer = (dialog) => dialog.getByRole("group", { name: /^(Replace|Revoke) the/ });
const hasFocus = (locator) => locator.evaluate((element) => element === document.activeElement);
const secretIn = (dialog) => dialog.locator("pre").first().textContent();
const api = (key) => new Api(`${gateway.origin}/#key=${key}`);
/** The scopes of a key, or the status of the refusal. */
const scopesOf = async (key) => {
  const response = await fetch(`${gateway.origin}/v1`, { headers: { Authorization: `Bearer ${key}` } });
  return response.ok ? (await response.json()).scopes : response.status;
};
const stored = (page) => page.evaluate(() => [sessionStorage, localStorage].map((storage) => storage.getItem("acp-gateway.key")));

async function openKeys({ page, dialog }) {
  await settings(page).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Keys…" }).press("Enter");
  await dialog.getByRole("list", { name: "Keys" }).waitFor();
}

/** Fails if the page, its address or its storage contains the secret. */
async function forgotten(page, secret) {
  const places = await page.evaluate(() => [document.documentElement.outerHTML, location.href, JSON.stringify({ ...localStorage }), JSON.stringify({ ...sessionStorage })]);
  assert.deepEqual(places.filter((text) => text.includes(secret)), []);
}

test("with the keyboard alone, a person makes a key with few rights, and its secret ends with the dialog", async () => {
  const own = await gateway.key("alice", SCOPES);
  const alice = await open(own);
  const { page, dialog, watch } = alice;
  await openKeys(alice);
  await row(dialog, "alice").getByText("This device").waitFor();
  assert.match(await row(dialog, "alice").textContent(), /Read sessions, Send messages, Answer requests of agents.*Created .* · Last used .* · Does not expire/);
  await pictures(page, "keys");

  await dialog.getByRole("button", { name: "New key" }).focus();
  await page.keyboard.press("Enter");
  const name = dialog.getByRole("textbox", { name: "Name" });
  await name.waitFor();
  assert.equal(await hasFocus(name), true);
  assert.deepEqual(await dialog.getByRole("checkbox").evaluateAll((boxes) => boxes.map((box) => [box.value, box.checked])), [["read", true], ["prompt", false], ["approve", false]]);
  assert.deepEqual(await dialog.getByRole("combobox", { name: "Expires" }).locator("option").allTextContents(), ["Never", "In 7 days", "In 30 days", "In 90 days"]);
  await page.keyboard.type("two words");
  await page.keyboard.press("Enter");
  await dialog.getByRole("alert").filter({ hasText: /1 to 64 letters/ }).waitFor();
  assert.equal(await hasFocus(name), true);
  assert.match(await page.locator(`[id="${await name.getAttribute("aria-describedby")}"]`).textContent(), /1 to 64 letters/);
  await pictures(page, "keys-problem");

  await name.fill("ci");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Secret of ci" }).waitFor();
  const secret = await secretIn(dialog);
  assert.match(secret, SECRET);
  await dialog.getByText("it is not shown again").waitFor();
  const copy = dialog.getByRole("button", { name: "Copy the secret" });
  assert.equal(await hasFocus(copy), true);
  await page.keyboard.press("Enter");
  await dialog.getByRole("button", { name: "Copied" }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), secret);
  const line = await dialog.locator("pre").nth(1).textContent();
  assert.equal(line, `read -rs KEY && curl -s "${gateway.origin}/v1" -H "Authorization: Bearer $KEY"`);
  assert.deepEqual(await stored(page), [own, null]);
  await pictures(page, "keys-secret");
  assert.deepEqual(await scopesOf(secret), ["read"]);
  const { expiresAt } = (await api(own).call("GET", "keys")).keys.find((key) => key.name === "ci");
  assert.ok(Math.abs(Date.parse(expiresAt) - Date.now() - 30 * DAY_MS) < DAY_MS);

  await page.keyboard.press("Escape");
  await row(dialog, "ci").waitFor();
  await forgotten(page, secret);
  assert.equal(await hasFocus(dialog.getByRole("button", { name: "New key" })), true);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await forgotten(page, secret);
  assert.equal(await hasFocus(settings(page)), true);
  await watch.close();
});

test("a page without the interface for the clipboard copies the secret of a dialog", async () => {
  const carla = await open(await gateway.key("carla", "read"));
  const { page, dialog, watch } = carla;
  await openKeys(carla);
  await dialog.getByRole("button", { name: "New key" }).click();
  await dialog.getByRole("textbox", { name: "Name" }).fill("phone");
  await dialog.getByRole("button", { name: "Create key" }).click();
  const secret = await secretIn(dialog);
  await page.evaluate(() => {
    navigator.clipboard.writeText = () => Promise.reject(new Error("not permitted"));
  });
  await dialog.getByRole("button", { name: "Copy the secret" }).click();
  await dialog.getByRole("button", { name: "Copied" }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), secret);
  assert.equal(await page.locator("textarea.hidden").count(), 0);
  await watch.close();
});

test("a rotation and a revocation need a confirmation, and errors of the gateway are shown at the key", async () => {
  const own = await gateway.key("dora", SCOPES);
  const previous = await gateway.key("builds", "read", "--user", "dora");
  await gateway.key("boss", `${SCOPES},files`, "--user", "dora");
  const dora = await open(own);
  const { page, dialog, watch } = dora;
  await openKeys(dora);

  const rotate = row(dialog, "builds").getByRole("button", { name: "Rotate builds" });
  await rotate.press("Enter");
  assert.equal(await hasFocus(answer(dialog).getByRole("button", { name: "Cancel" })), true);
  await pictures(page, "keys-rotate");
  await page.keyboard.press("Escape");
  await answer(dialog).waitFor({ state: "detached" });
  assert.equal(await hasFocus(rotate), true);
  assert.deepEqual(await scopesOf(previous), ["read"]);
  await rotate.press("Enter");
  await answer(dialog).getByRole("button", { name: "Rotate" }).press("Enter");
  await page.getByRole("dialog", { name: "Secret of builds" }).waitFor();
  const secret = await secretIn(dialog);
  assert.match(secret, SECRET);
  assert.equal(await dialog.getByText("This page continues").count(), 0);
  assert.deepEqual([await scopesOf(previous), await scopesOf(secret)], [401, ["read"]]);
  await dialog.getByRole("button", { name: "Done" }).click();
  await forgotten(page, secret);

  await row(dialog, "boss").getByRole("button", { name: "Revoke boss" }).press("Enter");
  await answer(dialog).getByRole("button", { name: "Revoke" }).press("Enter");
  await answer(dialog).getByRole("alert").filter({ hasText: "files" }).waitFor();
  await pictures(page, "keys-refused");
  await page.keyboard.press("Escape");
  await dialog.getByRole("alert").waitFor({ state: "detached" });

  await row(dialog, "builds").getByRole("button", { name: "Revoke builds" }).press("Enter");
  assert.equal(await answer(dialog).getByText("the page will be signed out").count(), 0);
  await answer(dialog).getByRole("button", { name: "Revoke" }).press("Enter");
  await row(dialog, "builds").waitFor({ state: "detached" });
  assert.equal(await hasFocus(dialog.getByRole("button", { name: "New key" })), true);
  assert.equal(await scopesOf(secret), 401);
  await watch.close();
});

test("after the rotation of its own key, each tab that keeps the key on the device continues with the new secret", async () => {
  const own = await gateway.key("emil", SCOPES);
  const emil = await open(own);
  const { page, dialog, watch } = emil;
  await settings(page).click();
  await page.getByRole("checkbox", { name: /^Keep the key on this device/ }).check();
  await page.keyboard.press("Escape");
  const other = await watch.newPage();
  await other.goto(gateway.origin);
  await other.getByText("Signed in as emil").waitFor();

  await openKeys(emil);
  await row(dialog, "emil").getByRole("button", { name: "Rotate emil" }).press("Enter");
  await answer(dialog).getByText("This page continues with the new secret.").waitFor();
  const continues = other.waitForRequest((request) => {
    const { authorization } = request.headers();
    return authorization !== undefined && authorization !== `Bearer ${own}`;
  });
  await answer(dialog).getByRole("button", { name: "Rotate" }).press("Enter");
  await page.getByRole("dialog", { name: "Secret of emil" }).waitFor();
  const secret = await secretIn(dialog);
  assert.notEqual(secret, own);
  await dialog.getByText("This page continues with the new secret.").waitFor();
  assert.equal(await scopesOf(own), 401);
  assert.deepEqual(await stored(page), [secret, secret]);
  assert.equal((await continues).headers().authorization, `Bearer ${secret}`);
  await other.getByText("Signed in as emil").waitFor();
  assert.deepEqual(await stored(other), [null, secret]);

  await page.keyboard.press("Escape");
  await row(dialog, "emil").getByText("This device").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(await hasFocus(page.locator("#main")), true);
  assert.equal(await page.evaluate((secret) => document.documentElement.outerHTML.includes(secret), secret), false);
  await watch.close();
});

test("a person who revokes the key of the page is signed out", async () => {
  const own = await gateway.key("finn", SCOPES);
  const finn = await open(own);
  const { page, dialog, watch } = finn;
  await openKeys(finn);
  await row(dialog, "finn").getByRole("button", { name: "Revoke finn" }).press("Enter");
  await answer(dialog).getByText("the page will be signed out").waitFor();
  await pictures(page, "keys-revoke");
  await answer(dialog).getByRole("button", { name: "Revoke" }).press("Enter");
  await page.getByLabel("Key or link").waitFor();
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(await stored(page), [null, null]);
  assert.equal(await scopesOf(own), 401);
  await watch.close();
});

test("the dialog offers no end after that of the key of the page, and an admin sees only the own keys in it", async () => {
  const gina = await open(await gateway.key("gina", "read,admin", "--expires-in", "10d"));
  const { page, dialog, watch } = gina;
  await openKeys(gina);
  assert.equal(await dialog.getByRole("listitem").count(), 1);
  await dialog.getByRole("button", { name: "New key" }).click();
  const expires = dialog.getByRole("combobox", { name: "Expires" });
  assert.deepEqual(await expires.locator("option").allTextContents(), ["With the key of this page", "In 7 days"]);
  await dialog.getByRole("textbox", { name: "Name" }).fill("short");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Secret of short" }).waitFor();
  const own = await stored(page);
  const { keys } = await api(own[0]).call("GET", "keys");
  const [short, current] = ["short", "gina"].map((name) => keys.find((key) => key.name === name));
  assert.equal(short.expiresAt, current.expiresAt);
  await watch.close();
});
