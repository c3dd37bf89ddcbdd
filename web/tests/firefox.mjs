// Tests the parts in which browsers differ in Firefox: content security policy, workers, streams, locks and focus. The protocol is
// WebDriver BiDi.
//
// FIREFOX names the browser (default /usr/bin/firefox-esr). Else the environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import puppeteer from "puppeteer-core";
import { Gateway } from "./support/gateway.mjs";

let gateway;
let browser;
let page;
/** Errors of the pages, and violations of their policy. */
const seen = [];

before(async () => {
  gateway = await Gateway.start();
  browser = await puppeteer.launch({ browser: "firefox", executablePath: process.env.FIREFOX ?? "/usr/bin/firefox-esr" });
  page = await open();
});
after(async () => {
  await browser?.close();
  await gateway?.end();
});

async function open() {
  const tab = await browser.newPage();
  tab.on("console", (message) => ["error", "warn"].includes(message.type()) && seen.push(message.text()));
  tab.on("pageerror", (error) => seen.push(String(error)));
  await tab.evaluateOnNewDocument(() => {
    addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => console.error(`policy: ${violatedDirective} ${blockedURI}`));
  });
  tab.setDefaultTimeout(20_000);
  await tab.goto(gateway.link);
  return tab;
}

async function send(text) {
  await page.bringToFront();
  await page.waitForSelector("textarea:focus");
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
}

/** Waits for the end of the turn with this number, from 1. */
const finished = (tab, number) => tab.waitForSelector(`article:nth-of-type(${number}) ::-p-text(Finished)`);

test("the first message starts a session, and its code is highlighted", async () => {
  await send("/markdown");
  await page.waitForSelector(".code-keyword");
  await finished(page, 1);
});

test("a permission is answered", async () => {
  await send("/permission");
  await page.locator('.permission button[aria-disabled="false"]').click();
  await page.waitForSelector(".request-line ::-p-text(chosen by owner)");
  await finished(page, 2);
});

test("a second tab uses the stream of the first, and both continue after a kill of the gateway", async () => {
  const other = await open();
  await other.waitForSelector("textarea");
  await other.evaluate((hash) => (location.hash = hash), new URL(page.url()).hash);
  await finished(other, 2);
  await send("/about this session");
  for (const tab of [page, other]) await finished(tab, 3);
  assert.deepEqual(seen, []);
  await gateway.kill();
  await page.waitForSelector(".banner");
  await gateway.restart();
  await page.waitForSelector(".banner", { hidden: true });
  await send("/about the restart");
  for (const tab of [page, other]) await finished(tab, 4);
  await other.close();
  // Requests failed while the gateway did not run.
  seen.length = 0;
});

test("Ctrl+K on a narrow page opens the list with the focus in its search", async () => {
  await page.bringToFront();
  await page.setViewport({ width: 390, height: 844 });
  await page.waitForSelector("textarea:focus");
  await page.keyboard.down("Control");
  await page.keyboard.press("k");
  await page.keyboard.up("Control");
  await page.keyboard.type("markdown");
  await page.waitForSelector('input[type="search"]:focus');
  assert.equal(await page.$eval('input[type="search"]', (field) => field.value), "markdown");
  assert.deepEqual(seen, []);
});
