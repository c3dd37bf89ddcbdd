// Open WebUI in Chromium, in front of the gateway. Prints what a person sees, as JSON.
//
//   node open_webui.mjs OPEN_WEBUI_URL GATEWAY_URL KEY [SCREENSHOT]

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../../web/package.json", import.meta.url))("playwright-core");
const [webui, gateway, key, screenshot] = process.argv.slice(2);

const ask = async (url, token, body) => {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const response = await fetch(url, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  assert.equal(response.status, 200, `${url}: ${await response.clone().text()}`);
  return response.json();
};
const sessions = async () => (await ask(`${gateway}/v1/sessions`, key)).sessions;
const turns = async (session) => (await ask(`${gateway}/v1/sessions/${session}/prompts`, key)).prompts.length;

const account = { name: "Test", email: "test@example.com", password: "a long password 1" };
const { token } = await ask(`${webui}/api/v1/auths/signup`, "", account);
const models = (await ask(`${webui}/api/models`, token)).data.map((model) => model.id);
assert.ok(models.includes("demo"), `the agent is a model: ${models}`);

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  await context.addInitScript((text) => localStorage.setItem("token", text), token);
  const page = await context.newPage();
  await page.goto(`${webui}/?models=demo`);
  const send = async (text) => {
    const input = page.locator("#chat-input");
    await input.click();
    await input.pressSequentially(text);
    await page.keyboard.press("Enter");
  };
  // The news of the version are shown once.
  await page.getByRole("button", { name: /Let.s Go/ }).click();
  await send("hello");
  await page.getByText("demo agent").first().waitFor({ timeout: 30_000 });
  // The reasoning is a closed block above the answer.
  await page.getByText(/Thought/).first().waitFor({ timeout: 30_000 });
  const [session, ...others] = await sessions();
  assert.deepEqual(others, [], "titles and tags are no sessions of the list");
  await send("/about");
  await page.getByText("speaks ACP").first().waitFor({ timeout: 30_000 });
  assert.deepEqual((await sessions()).map(({ sessionId }) => sessionId), [session.sessionId]);
  assert.equal(await turns(session.sessionId), 2);
  if (screenshot) await page.screenshot({ path: screenshot });
  console.log(JSON.stringify({ models, session: session.sessionId, turns: 2 }));
} finally {
  await browser.close();
}
