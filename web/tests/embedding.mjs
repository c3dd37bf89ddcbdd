// The page in a frame of another origin.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { Api } from "./support/api.mjs";
import { checkAccessibility, launch, screenshot } from "./support/browser.mjs";
import { Gateway } from "./support/gateway.mjs";

let browser;
let gateway;
let portal;
let origin;
before(async () => {
  browser = await launch();
  // A page that has the frame, at an address of its own.
  portal = createServer((request, response) => {
    response.setHeader("content-type", "text/html");
    response.end(`<!doctype html><html lang="en"><title>Portal</title><h1>Portal</h1>
      <iframe title="Agent" width="800" height="600" src="${new URL(request.url, "http://x").searchParams.get("src")}"></iframe>`);
  }).listen(0, "127.0.0.1");
  await once(portal, "listening");
  origin = `http://localhost:${portal.address().port}`;
  gateway = await Gateway.start({ config: `[auth]\nframe_ancestors = ["${origin}"]\n[agents.demo]\nbuiltin = "demo"\n` });
});
after(async () => {
  await browser?.close();
  await gateway?.end();
  portal?.close();
});

// The origins are of different sites, so the browser gives the frame neither storage nor locks.
test("a page of a permitted origin shows a session in a frame", async () => {
  const api = new Api(gateway.link);
  const session = await api.session("demo");
  await api.prompt(session, "/about");
  const page = await browser.newPage();
  // The link of a session with a key: the page takes the key and shows the session.
  const src = `${gateway.origin}/?embed=1#key=${api.key}`;
  await page.goto(`${origin}/?src=${encodeURIComponent(src)}`);
  const frame = page.frameLocator("iframe");
  await frame.getByRole("button", { name: /^Agent:/ }).waitFor();
  assert.equal(await frame.getByRole("navigation").count(), 0, "no list of sessions");
  await page.frames()[1].evaluate((id) => (location.hash = `#/s/${id}`), session);
  await frame.getByText("speaks ACP").waitFor();
  const message = frame.getByRole("textbox", { name: "Message" });
  await message.fill("hello");
  await message.press("Enter");
  await frame.getByText("demo agent").first().waitFor();
  await screenshot(page, "embedded-light");
  await page.close();
  const alone = await browser.newPage();
  await alone.goto(`${gateway.origin}/?embed=1#key=${api.key}`);
  await alone.getByRole("button", { name: /^Agent:/ }).waitFor();
  await checkAccessibility(alone, "embedded");
  await alone.close();
});

test("a page of another origin cannot", async () => {
  const page = await browser.newPage();
  const blocked = page.waitForEvent("console", (message) => /frame-ancestors/.test(message.text()));
  await page.goto(`${origin.replace("localhost", "127.0.0.1")}/?src=${encodeURIComponent(`${gateway.origin}/?embed=1`)}`);
  await blocked;
  await page.close();
});
