// Every kind of agent on the page: its kind, its state, a session with an answer, and the errors of connections.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Api } from "./support/api.mjs";
import { checkAccessibility, launch, screenshot, Watch } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { Gateway } from "./support/gateway.mjs";
import { Member } from "./support/member.mjs";

const file = (name) => fileURLToPath(new URL(name, import.meta.url));
const toml = JSON.stringify;
const WIDTHS = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 800 } };

let browser;
let far;
let gateway;
let member;
let memberKey;
let watch;
let page;
let chat;
let link;

const farFolder = () => path.join(far.folder, "data", "workspaces", "far");

/** The entries of all kinds but the member, which has none. */
function entries(farKey) {
  const agents = {
    demo: ['builtin = "demo"'],
    // The interpreter can be in a home that isolation hides.
    early: ['command = "python3"', `args = ${toml([file("../../tests/agents/early_agent.py"), "/dev/null"])}`, 'dialect = "early-acp"', 'isolation = "off"'],
    claude: [
      `command = ${toml(process.execPath)}`,
      `args = ${toml([file("support/stream_json_agent.mjs"), file("../../tests/agents/claude-code-2.1.197/hello.jsonl")])}`,
      'dialect = "stream-json"',
    ],
    far: [
      `url = ${toml(`${far.origin.replace(/^http/, "ws")}/acp/demo`)}`,
      `token = ${toml(farKey)}`,
      `remote_folders = ${toml([farFolder()])}`,
      "pool = { min_idle = 0 }",
    ],
    broken: ['command = "false"', "pool = { min_idle = 0 }"],
  };
  const tables = Object.entries(agents).map(([name, lines]) => `[agents.${name}]\n${lines.join("\n")}\n`);
  return `${tables.join("\n")}\n[testing]\nmember_return_timeout = "2s"\n`;
}

before(async () => {
  browser = await launch();
  far = await Gateway.start();
  await mkdir(farFolder());
  const farKey = new URLSearchParams(new URL(await far.adminLink()).hash.slice(1)).get("key");
  gateway = await Gateway.start({ config: entries(farKey) });
  link = await gateway.adminLink();
  memberKey = await gateway.key("laptop", "fleet");
  member = Member.start(gateway, "laptop", memberKey);
  watch = await Watch.page(browser, gateway.origin, { colorScheme: "light", viewport: WIDTHS.desktop, reducedMotion: "reduce", allowFailedRequests: true });
  page = watch.page;
  chat = new Chat(page);
  await page.goto(link);
});
after(async () => {
  await watch?.close();
  await browser?.close();
  await member?.stop();
  await gateway?.end();
  await far?.end();
});

const choice = (name) => page.locator("label.agent").filter({ has: page.locator(`input[value="${name}"]`) });

async function startPage() {
  await page.goto(`${gateway.origin}/#/`);
  await page.getByRole("heading", { name: "What should we work on?" }).waitFor();
  await page.getByLabel("First message").fill("");
  await chat.openAgents();
}

const openFolders = () => page.getByRole("button", { name: /^Folder:/ }).click();

async function pictures(name) {
  for (const [device, size] of Object.entries(WIDTHS)) {
    await page.setViewportSize(size);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `${name} is wider than ${device}`);
    await screenshot(page, `${name}-${device}`);
  }
}

test("every kind of agent has its kind and its state", async () => {
  await chat.openAgents();
  await choice("laptop").waitFor();
  const kinds = { demo: "Built in", early: "Early ACP", claude: "Claude Code protocol", far: "Remote host", broken: "Command", laptop: "Fleet member" };
  for (const [name, kind] of Object.entries(kinds)) {
    await choice(name).locator(".agent-kind").filter({ hasText: kind }).waitFor();
    await choice(name).locator(".agent-state").filter({ hasText: "Available" }).waitFor();
  }
  await checkAccessibility(page);
  await pictures("agents");
});

for (const [name, answer] of Object.entries({ demo: /Pace and answer length/, early: /^hello there/, claude: /mock says: hello/, far: /Pace and answer length/, laptop: /Pace and answer length/ })) {
  test(`the first Enter starts a session of ${name} and sends the message`, async () => {
    await startPage();
    await choice(name).click();
    await page.getByLabel("First message").fill(answer.source.includes("hello there") ? "echo hello there" : "/help");
    await page.getByLabel("First message").press("Enter");
    await page.waitForURL(/#\/s\/[0-9a-f-]+$/);
    await chat.ended("Finished");
    assert.match(await chat.answer.textContent(), answer);
    assert.equal(await chat.turns.count(), 1);
    await screenshot(page, `agent-${name}`);
  });
}

test("a session starts in a folder below a workspace root, which is recent then", async () => {
  const root = path.join(gateway.folder, "data", "workspaces");
  await mkdir(path.join(root, "harbor", "web"), { recursive: true });
  await startPage();
  await choice("demo").click();
  await openFolders();
  await page.getByRole("button", { name: "Another folder…" }).click();
  const folders = page.getByRole("list", { name: /^(Workspace roots|Folders in)/ });
  await folders.getByRole("button", { name: "workspaces" }).press("Enter");
  // The folders of other sessions are not offered.
  await folders.getByRole("button", { name: "harbor" }).waitFor();
  await page.waitForFunction(() => document.activeElement.textContent === "All roots");
  assert.deepEqual(await folders.getByRole("button").allTextContents(), ["All roots", "harbor"]);
  await folders.getByRole("button", { name: "harbor" }).click();
  await folders.getByRole("button", { name: "web" }).waitFor();
  assert.match(await page.getByLabel("Path of the folder").inputValue(), /\/workspaces\/harbor$/);
  await checkAccessibility(page);
  await pictures("start-folder");
  // A folder that was only looked at is not the folder of the session.
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /^Folder:.*New folder/ }).click();
  await page.getByRole("button", { name: "Another folder…" }).click();
  await folders.getByRole("button", { name: "workspaces" }).click();
  await folders.getByRole("button", { name: "harbor" }).click();
  await folders.getByRole("button", { name: "web" }).waitFor();
  await page.getByRole("button", { name: "Use this folder" }).click();
  await page.getByRole("group", { name: "Folder of the session" }).waitFor({ state: "detached" });
  await page.getByLabel("First message").fill("/help");
  await page.getByLabel("First message").press("Enter");
  await page.waitForURL(/#\/s\/[0-9a-f-]+$/);
  await chat.ended("Finished");
  await page.locator(".bar-path").filter({ hasText: /^harbor$/ }).waitFor();

  await startPage();
  await choice("demo").click();
  await openFolders();
  const recent = page.getByRole("group", { name: "Folder of the session" }).locator("code");
  await recent.first().waitFor();
  assert.match((await recent.allTextContents()).join(), /^[^,]*\/workspaces\/harbor$/);
  await page.keyboard.press("Escape");
});

test("the start page keeps the folder, and suggests the commands of the agent and the files of the folder", async () => {
  await writeFile(path.join(gateway.folder, "data", "workspaces", "harbor", "web", "berth.ts"), "export const berths = 4;\n");
  await page.reload();
  await page.getByRole("button", { name: /^Folder:.*harbor/ }).waitFor();
  // Another agent of this host works there too. One of another host does not.
  await chat.openAgents();
  await choice("early").click();
  await page.getByRole("button", { name: /^Folder:.*harbor/ }).waitFor();
  await chat.openAgents();
  await choice("far").click();
  await page.getByRole("button", { name: /^Folder:.*New folder/ }).waitFor();
  await chat.openAgents();
  await choice("demo").click();
  await page.getByRole("button", { name: /^Folder:.*harbor/ }).waitFor();
  const field = page.getByLabel("First message");
  await field.pressSequentially("/pl");
  await page.getByRole("option", { name: /^\/plan / }).waitFor();
  await checkAccessibility(page);
  await pictures("start-suggestions");
  await field.press("Tab");
  assert.equal(await field.inputValue(), "/plan ");
  await field.fill("look at @bert");
  await page.getByRole("option", { name: /^web\/berth\.ts/ }).waitFor();
  await field.press("Enter");
  assert.equal(await field.inputValue(), "look at @web/berth.ts ");
  await field.press("Enter");
  await page.waitForURL(/#\/s\/[0-9a-f-]+$/);
  await chat.ended("Finished");
  const session = page.url().split("/").at(-1);
  const { events } = await new Api(link).call("GET", `sessions/${session}/events?types=prompt.started&limit=200`);
  assert.deepEqual(events[0].prompt.map(({ type, resource }) => [type, resource?.text]), [["text", undefined], ["resource", "export const berths = 4;\n"]]);
});

test("a folder outside of the roots shows the error and keeps the message", async () => {
  await startPage();
  await choice("demo").click();
  await openFolders();
  await page.getByRole("button", { name: "Another folder…" }).click();
  await page.getByLabel("Path of the folder").fill("/etc");
  await page.getByLabel("Path of the folder").press("Enter");
  await page.getByLabel("First message").fill("hello");
  await page.getByLabel("First message").press("Enter");
  await page.getByRole("alert").filter({ hasText: /outside the workspace roots/ }).waitFor();
  assert.equal(await page.getByLabel("First message").inputValue(), "hello");
});

test("an agent whose start failed is unavailable, with the reason", async () => {
  await startPage();
  await page.reload();
  await chat.openAgents();
  await choice("broken").click();
  await page.getByLabel("First message").fill("hello");
  await page.getByLabel("First message").press("Enter");
  await page.getByRole("alert").waitFor();
  assert.equal(await page.getByLabel("First message").inputValue(), "hello", "the message stays");
  await chat.openAgents();
  await choice("broken").locator(".agent-state").filter({ hasText: /^Unavailable: .*exited with code 1/ }).waitFor();
  await checkAccessibility(page);
  await pictures("agent-unavailable");
});

test("an error of a connection has a next step", async () => {
  await startPage();
  await choice("far").click();
  await page.getByRole("button", { name: "Start session" }).click();
  await page.waitForURL(/#\/s\/[0-9a-f-]+$/);
  await chat.send("/slow 120");
  await chat.lastTurn.locator(".working").waitFor();
  await chat.lastTurn.locator(".from-agent").first().waitFor();
  await far.kill();
  await chat.lastTurn.locator(".problem").filter({ hasText: /Check that the agent's host is running/ }).waitFor();
  await checkAccessibility(page);
  await pictures("agent-host-lost");
  await far.restart();
  await chat.send("/help");
  await chat.ended("Finished");
});

test("a member is draining, reconnecting and disconnected", async () => {
  const api = new Api(link);
  await startPage();
  await api.call("POST", "fleet/laptop/drain");
  await choice("laptop").locator(".agent-state").filter({ hasText: "Draining" }).waitFor();
  assert.equal(await choice("laptop").locator("input").isDisabled(), true);
  await member.stop();
  await choice("laptop").locator(".agent-state").filter({ hasText: "Disconnected: Start acp-gateway connect on its machine again." }).waitFor();
  await checkAccessibility(page);
  await pictures("agent-disconnected");

  // A session of the member shows the same as an error, and works again when the member is back.
  const session = (await api.call("GET", "sessions?agent=laptop")).sessions[0].sessionId;
  await page.goto(`${gateway.origin}/#/s/${session}`);
  await chat.send("/help");
  await chat.lastTurn.locator(".problem").filter({ hasText: "Start acp-gateway connect on the agent's machine" }).waitFor();
  await pictures("agent-member-away");
  member = Member.start(gateway, "laptop", memberKey);
  await startPage();
  await choice("laptop").locator(".agent-state").filter({ hasText: "Available" }).waitFor();
  await page.goto(`${gateway.origin}/#/s/${session}`);
  await chat.send("/help");
  await chat.ended("Finished");
});
