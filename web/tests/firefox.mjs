// The page in Firefox, with the standard protocol of browsers (WebDriver BiDi): what browsers do differently is in the policy of
// content, in workers, in streams, in locks and in the focus.
//
// FIREFOX names the browser (default /usr/bin/firefox-esr). Else the environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import puppeteer from "puppeteer-core";
import { Gateway } from "./support/gateway.mjs";

const gateway = await Gateway.start();
after(() => gateway.end());
const browser = await puppeteer.launch({ browser: "firefox", executablePath: process.env.FIREFOX ?? "/usr/bin/firefox-esr" });
after(() => browser.close());

/** What the pages report. A request that fails while the gateway does not run is no error of the page. */
const seen = [];

async function open(link) {
  const page = await browser.newPage();
  page.on("console", (message) => ["error", "warn"].includes(message.type()) && seen.push(message.text()));
  page.on("pageerror", (error) => seen.push(String(error)));
  page.setDefaultTimeout(20_000);
  await page.goto(link);
  return page;
}

const has = (page, words) => page.waitForSelector(`::-p-text(${words})`);
async function send(page, text) {
  await page.waitForSelector("textarea:focus");
  await page.keyboard.type(text);
  // The first one closes the list of commands.
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
}

const page = await open(gateway.link);

test("the first message starts a session, and its code is highlighted", async () => {
  await send(page, "/markdown");
  await page.waitForSelector(".code-keyword");
  await has(page, "Finished");
});

test("a permission is answered", async () => {
  await send(page, "/permission");
  await page.locator('.permission button[aria-disabled="false"]').click();
  await page.waitForSelector(".request-line ::-p-text(chosen by owner)");
});

test("a second tab uses the stream of the first, and both continue after a kill of the gateway", async () => {
  const other = await open(gateway.link);
  await other.waitForSelector("textarea");
  await other.evaluate((hash) => (location.hash = hash), new URL(page.url()).hash);
  await has(other, "chosen by owner");
  await page.bringToFront();
  await send(page, "/about this session");
  for (const tab of [page, other]) await tab.waitForSelector("article:nth-of-type(3) ::-p-text(Finished)");
  assert.deepEqual(seen, []);
  await gateway.kill();
  await page.waitForSelector(".banner");
  await gateway.restart();
  await page.waitForSelector(".banner", { hidden: true });
  await send(page, "/about the restart");
  for (const tab of [page, other]) await tab.waitForSelector("article:nth-of-type(4) ::-p-text(Finished)");
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
});
