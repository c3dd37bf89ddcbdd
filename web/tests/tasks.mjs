// Tasks and installable agents on the page: states, sessions, cancelling, and narrow screens. `first_run.mjs` installs agents.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { checkAccessibility, launch, screenshot, Watch } from "./support/browser.mjs";
import { Gateway } from "./support/gateway.mjs";

let browser;
let folder;
let gateway;
let key;
let watch;
let page;

async function call(method, path, body) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json", prefer: "wait=30" };
  const response = await fetch(`${gateway.origin}/v1/${path}`, { method, headers, body: body && JSON.stringify(body) });
  assert.equal(response.ok, true, `${method} ${path}: ${response.status}`);
  return response.json();
}

before(async () => {
  browser = await launch();
  folder = await mkdtemp(path.join(tmpdir(), "registry-"));
  const distribution = { npx: { package: "hello-agent@1.0.0" } };
  const entry = (id, name, description) => ({ id, name, version: "1.0.0", description, distribution });
  const agents = [entry("demo", "Demo", "Configured already"), entry("hello", "Hello <b>agent</b>", "Says hello")];
  await writeFile(path.join(folder, "registry.json"), JSON.stringify({ version: "1.0.0", agents }));
  const registry = `[registry]\nsource = ${JSON.stringify(path.join(folder, "registry.json"))}\n`;
  gateway = await Gateway.start({ config: `[agents.demo]\nbuiltin = "demo"\npool = { max_size = 1, min_idle = 0 }\n${registry}` });
  const link = await gateway.adminLink();
  key = new URLSearchParams(new URL(link).hash.slice(1)).get("key");
  watch = await Watch.page(browser, gateway.origin, { colorScheme: "light", viewport: { width: 1280, height: 800 }, reducedMotion: "reduce" });
  page = watch.page;
  await page.goto(link);
});
after(async () => {
  await watch?.close();
  await browser?.close();
  await gateway?.end();
  if (folder) await rm(folder, { recursive: true });
});

test("tasks are listed with their states and their sessions", async () => {
  await page.getByRole("link", { name: "Tasks" }).click();
  await page.getByText("No tasks yet.").waitFor();
  await page.getByText("Programs give agents tasks through the API.").waitFor();
  assert.doesNotMatch(await page.locator("main").innerText(), /POST|\/v1/, "people get no names of routes");
  const done = await call("POST", "tasks", { agent: "demo", description: "Say hello to the team", prompt: "hello" });
  assert.equal(done.status, "completed");
  const row = page.locator("li.task").filter({ hasText: "Say hello to the team" });
  await row.getByText("Completed").waitFor();
  await row.getByText("Output").click();
  assert.notEqual(await row.locator("pre").innerText(), "");
  await checkAccessibility(page, "tasks");
  await screenshot(page, "tasks-desktop");
  await row.getByRole("link", { name: "Open session" }).click();
  await page.waitForURL(`**/#/s/${done.sessionId}`);
  await page.getByText("hello").first().waitFor();
  // The list of sessions omits the session of a task.
  assert.equal(await page.locator(".session-groups li").count(), 0);
  await page.goBack();
});

test("a queued task is cancelled from the page", async () => {
  // A person's turn that waits for an answer has the only process.
  const session = await call("POST", "sessions", { agent: "demo" });
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const post = (path, body) => fetch(`${gateway.origin}/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  await post(`sessions/${session.sessionId}/prompts`, { prompt: "/permission" });
  const created = await (await post("tasks", { agent: "demo", description: "A very-long-word-".repeat(30) })).json();
  await page.goto(`${gateway.origin}/#/tasks`);
  const row = page.locator("li.task").first();
  await row.getByText(/Queued|Running/).waitFor();
  await row.getByRole("button", { name: "Cancel" }).click();
  await row.getByText("Cancelled").waitFor();
  assert.equal((await call("GET", `tasks/${created.taskId}`)).status, "cancelled");
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "no overflow on a phone");
  await checkAccessibility(page, "tasks on a phone");
  await screenshot(page, "tasks-phone");
});

test("an admin sees the agents of the registry", async () => {
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.goto(`${gateway.origin}/#/`);
  const item = page.locator(".offer");
  await item.getByRole("button", { name: "Install Hello <b>agent</b> 1.0.0" }).waitFor();
  assert.equal(await item.count(), 1, "configured agents are omitted");
  assert.match(await item.innerText(), /Hello <b>agent<\/b>/);
  await checkAccessibility(page, "installable agents");
  await screenshot(page, "installable-agents");
});
