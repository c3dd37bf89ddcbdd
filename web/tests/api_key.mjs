// The form for an API key: an agent refuses the first prompt, an admin types the key of its provider, and the next prompt
// is answered. The key is nowhere afterwards.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";

const KEY = "sk-mock-2b7e151628aed2a6";
const WRONG_KEY = "sk-mock-0000000000000000";

const agent = fileURLToPath(new URL("support/key_agent.mjs", import.meta.url));
const { gateway, page, chat, link } = await oneChat({
  config: nodeAgent("keyed", agent, [`env = { ACCEPTED_KEY = ${JSON.stringify(KEY)} }`]),
  agent: /keyed/,
  link: (gateway) => gateway.adminLink(),
  allowFailedRequests: true,
});

/** Every place that could contain a key: the page, its storage, the log of the gateway, and the API. */
async function traces() {
  const shown = await page.evaluate(() => {
    const fields = [...document.querySelectorAll("input, textarea")].map((field) => field.value);
    return [document.documentElement.outerHTML, location.href, ...fields, JSON.stringify([{ ...localStorage }, { ...sessionStorage }, history.state])];
  });
  const headers = { Authorization: `Bearer ${new URLSearchParams(new URL(link).hash.slice(1)).get("key")}` };
  const session = `/v1/sessions/${page.url().split("/").at(-1)}`;
  const paths = [session, `${session}/events`, `${session}/prompts`, `${session}/stderr`, "/v1/agents/keyed/auth"];
  const answers = await Promise.all(paths.map(async (path) => (await fetch(`${gateway.origin}${path}`, { headers })).text()));
  return [...shown, ...gateway.log, ...answers];
}

async function assertNoKey() {
  for (const trace of await traces()) {
    assert.equal(trace.includes(KEY) || trace.includes(WRONG_KEY), false, trace);
  }
}

async function signIn(key) {
  const called = page.waitForRequest((request) => request.method() === "POST" && request.url().endsWith("/v1/agents/keyed/auth"));
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  assert.deepEqual((await called).postDataJSON(), { methodId: "gemini-api-key", apiKey: key });
}

test("a prompt that needs a sign-in shows the form for the key", async () => {
  await chat.send("hello");
  await page.getByRole("list", { name: "Ways to sign in" }).filter({ hasText: "Key of the provider" }).waitFor();
  const field = page.getByLabel("API key");
  await field.waitFor();
  assert.equal(await field.getAttribute("type"), "password");
  await checkAccessibility(page);
  await screenshot(page, "api-key-light");
});

test("a key that the agent refuses is reported and not shown", async () => {
  await signIn(WRONG_KEY);
  await page.getByText("That did not work.").waitFor();
  assert.equal(await page.getByLabel("API key").inputValue(), "");
  await assertNoKey();
});

test("with the right key the next prompt is answered", async () => {
  await signIn(KEY);
  await page.getByText("Signed in. Try again").waitFor();
  await chat.send("hello");
  await chat.ended("Finished");
  assert.equal((await chat.answer.textContent()).trim(), "You said hello");
  await assertNoKey();
});

test("the key is masked in what the agent reports later, and is not there after a reload", async () => {
  await chat.send("fail");
  await chat.lastTurn.locator(".problem").filter({ hasText: "no quota for [secret]" }).waitFor();
  await assertNoKey();
  await page.reload();
  await chat.lastTurn.locator(".problem").filter({ hasText: "no quota for [secret]" }).waitFor();
  await assertNoKey();
});
