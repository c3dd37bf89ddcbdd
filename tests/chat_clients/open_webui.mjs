// Open WebUI in Chromium, in front of the gateway, with two people. Prints their sessions as JSON.
//
//   node open_webui.mjs OPEN_WEBUI_URL GATEWAY_URL KEY [SCREENSHOT]

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { setTimeout } from "node:timers/promises";

const { chromium } = createRequire(new URL("../../web/package.json", import.meta.url))("playwright-core");
const [webui, gateway, key, screenshot] = process.argv.slice(2);

const ask = async (url, token, { body, headers, status = 200 } = {}) => {
  headers = { authorization: `Bearer ${token}`, "content-type": "application/json", ...headers };
  const response = await fetch(url, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  assert.equal(response.status, status, `${url}: ${await response.clone().text()}`);
  return response.json();
};
// Reads the gateway with the key of Open WebUI. Without a person, the program reads its own objects.
const read = (path, person, status) =>
  ask(`${gateway}/v1/${path}`, key, { status, headers: person && { "x-acp-user": person.email } });
const sessions = async (person) => (await read("sessions", person)).sessions.map(({ sessionId }) => sessionId);
const turns = async (session, person) => (await read(`sessions/${session}/prompts`, person)).prompts.length;
// Waits for the title, the tags and the follow-up questions of a chat.
const sideJobs = async (person) => {
  for (;;) {
    const { tasks } = await read("tasks", person);
    if (tasks.length >= 3 && tasks.every((task) => task.endedAt)) return;
    await setTimeout(200);
  }
};

const account = (name) => ({ name, email: `${name}@example.org`, password: "a long password 1" });
// The first account administers Open WebUI, and adds the second one.
const ann = await ask(`${webui}/api/v1/auths/signup`, "", { body: account("ann") });
const ben = await ask(`${webui}/api/v1/auths/add`, ann.token, { body: { ...account("ben"), role: "user" } });
for (const person of [ann, ben]) {
  const models = (await ask(`${webui}/api/models`, person.token)).data.map((model) => model.id);
  assert.ok(models.includes("demo"), `the agent is a model: ${models}`);
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  const open = async ({ token }) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
    await context.addInitScript((text) => localStorage.setItem("token", text), token);
    const page = await context.newPage();
    await page.goto(`${webui}/?models=demo`);
    return page;
  };
  const send = async (page, text, answer) => {
    const input = page.locator("#chat-input");
    await input.click();
    await input.pressSequentially(text);
    await page.keyboard.press("Enter");
    await page.getByText(answer).first().waitFor({ timeout: 30_000 });
    // The reasoning is a closed block above the answer.
    await page.getByText(/Thought/).first().waitFor({ timeout: 30_000 });
  };
  const first = await open(ann);
  // Administrators see the news of the version once.
  await first.getByRole("button", { name: /Let.s Go/ }).click();
  await send(first, "hello", "demo agent");
  const second = await open(ben);
  await send(second, "hello", "demo agent");
  const [ofFirst, ofSecond] = [await sessions(ann), await sessions(ben)];
  assert.deepEqual([ofFirst.length, ofSecond.length], [1, 1], "each person has a session of its own");
  await read(`sessions/${ofFirst[0]}`, ben, 404);
  await read(`sessions/${ofSecond[0]}`, ann, 404);
  await send(first, "/about", "speaks ACP");
  assert.equal(await turns(ofFirst[0], ann), 2);
  for (const person of [ann, ben]) await sideJobs(person);
  const lists = await Promise.all([ann, ben, undefined].map(sessions));
  assert.deepEqual(lists, [ofFirst, ofSecond, []], "titles and tags are no sessions of any list");
  assert.deepEqual((await read("tasks")).tasks, [], "titles and tags belong to the person");
  if (screenshot) await first.screenshot({ path: screenshot });
  console.log(JSON.stringify({ first: ofFirst[0], second: ofSecond[0] }));
} finally {
  await browser.close();
}
