// The page for administrators: each section shows the state of a real gateway, and keys without the scope do not get it.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { Api } from "./support/api.mjs";
import { checkAccessibility, launch, screenshot, Watch } from "./support/browser.mjs";
import { Gateway } from "./support/gateway.mjs";
import { Member } from "./support/member.mjs";

const TOKEN = "token-4f1c2a9e7b5d";
const PROMPT = "a private question";
const DESKTOP = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
const SECTIONS = ["Overview", "Agents", "Storage", "Keys", "Fleet", "Webhooks", "Audit log", "Configuration"];
const BROKEN = "echo \"no model for $API_TOKEN\" >&2; exit 3";
/** `token`: the file with the secret of the agent that fails. */
const config = (token) => `
[agents.demo]
builtin = "demo"

[agents.broken]
command = "sh"
args = ["-c", ${JSON.stringify(BROKEN)}]
env = { API_TOKEN = { from_file = ${JSON.stringify(token)} } }
pool = { min_idle = 0 }

[webhooks]
allowed_hosts = ["localhost"]
`;

let browser;
let folder;
let gateway;
let api;
let member;
let memberKey;
let session;
let watch;
let page;

before(async () => {
  browser = await launch();
  folder = await mkdtemp(path.join(tmpdir(), "token-"));
  await writeFile(path.join(folder, "token"), TOKEN);
  gateway = await Gateway.start({ config: config(path.join(folder, "token")) });
  const link = await gateway.adminLink();
  api = new Api(link);
  memberKey = await gateway.key("laptop", "fleet");
  member = Member.start(gateway, "laptop", memberKey);
  // Loopback is not permitted, so each delivery fails.
  await api.call("POST", "webhooks", { url: "https://localhost:1/hook", events: ["prompt.completed"] });
  session = await api.session("demo");
  await api.call("POST", `sessions/${session}/prompts`, { prompt: PROMPT }, { Prefer: "wait=30" });
  await assert.rejects(api.session("broken"), /agent_/);
  watch = await Watch.page(browser, gateway.origin, { colorScheme: "light", viewport: DESKTOP, reducedMotion: "reduce" });
  page = watch.page;
  await page.goto(link);
});
after(async () => {
  await watch?.close();
  await browser?.close();
  await member?.stop();
  await gateway?.end();
  if (folder) await rm(folder, { recursive: true });
});

const table = (name) => page.getByRole("table", { name });

async function open(section) {
  await page.goto(`${gateway.origin}/#/admin/${section.split(" ")[0].toLowerCase()}`);
  await page.getByRole("heading", { name: section, exact: true, level: 2 }).waitFor();
}

test("the keyboard reaches the page and its sections", async () => {
  await page.getByRole("link", { name: "Administration" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Administration", level: 1 }).waitFor();
  const focused = () => page.evaluate(() => document.activeElement.closest("main nav") && document.activeElement.textContent);
  for (let tabs = 0; (await focused()) !== "Overview"; tabs += 1) {
    assert.ok(tabs < 60, "Tab leads to the sections");
    await page.keyboard.press("Tab");
  }
  for (const section of SECTIONS.slice(1)) {
    await page.keyboard.press("Tab");
    assert.equal(await focused(), section);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: section, exact: true, level: 2 }).waitFor();
  }
  await page.goBack();
  await page.getByRole("heading", { name: "Audit log", level: 2 }).waitFor();
});

test("the overview has the state of the gateway and its warnings", async () => {
  const { version, platform } = await api.call("GET", "diagnostics");
  await open("Overview");
  const figures = page.locator(".admin-figures");
  for (const text of ["Ready", version, platform]) await figures.getByText(text, { exact: true }).waitFor();
  assert.match(await figures.locator("div", { hasText: "Memory" }).locator("span[title]").getAttribute("title"), /^\d+ B$/);
  await table("Recent warnings and errors").getByRole("row").filter({ hasText: "broken" }).first().waitFor();
});

test("agents have their processes, and the last failure with its output and without its secret", async () => {
  await open("Agents");
  const broken = page.getByRole("listitem").filter({ hasText: "broken" });
  await broken.getByText("Last failure:").waitFor();
  await broken.getByText("exit code 3").waitFor();
  const output = broken.getByRole("group", { name: "Error output of the agent" });
  assert.equal(await output.isVisible(), false);
  await broken.getByText("Error output of the agent").click();
  assert.match(await output.innerText(), /^no model for (?!token)/);
  const { processes } = await api.call("GET", "diagnostics");
  const demo = processes.find(({ agent }) => agent === "demo");
  const row = table("Processes").getByRole("row").filter({ has: page.getByRole("cell", { name: String(demo.pid), exact: true }) });
  assert.match(await row.innerText(), /demo/);
  await screenshot(page, "admin-agents-light");
});

test("the storage has its figures and the largest sessions", async () => {
  const { store } = await api.call("GET", "diagnostics");
  await open("Storage");
  await page.getByText(store.folder, { exact: true }).waitFor();
  await table("Retention").getByRole("row").filter({ hasText: "retention.max_age" }).getByText("default").waitFor();
  const row = table("Largest sessions").getByRole("row").filter({ hasText: session });
  await row.getByRole("cell", { name: "demo" }).waitFor();
  await row.getByRole("link").click();
  await page.waitForURL(`**/#/s/${session}`);
  await page.goBack();
});

test("keys are listed without their secrets", async () => {
  await open("Keys");
  const rows = table("Keys").getByRole("row");
  await rows.filter({ hasText: "laptop" }).getByRole("cell", { name: "fleet", exact: true }).waitFor();
  assert.match(await rows.filter({ hasText: "ada" }).innerText(), /read, prompt, approve, files, admin/);
  const html = await page.content();
  assert.equal(html.includes(api.key) || html.includes(memberKey), false);
});

test("the fleet has the member", async () => {
  await open("Fleet");
  const row = table("Fleet").getByRole("row").filter({ hasText: "laptop" });
  await row.getByText("Connected").waitFor();
  assert.match(await row.innerText(), /\d of \d/);
});

test("webhooks have their failed deliveries", async () => {
  await open("Webhooks");
  await table("Webhooks").getByRole("row").filter({ hasText: "https://localhost:1/hook" }).getByText("Active").waitFor();
  const row = table("Failed and pending deliveries").getByRole("row").filter({ hasText: "prompt.completed" });
  await row.getByText("Pending").waitFor();
  await row.getByText("not permitted").waitFor();
  assert.equal(await row.getByRole("link").getAttribute("href"), `#/s/${session}`);
});

test("the audit log begins with the newest event and is filtered", async () => {
  await open("Audit log");
  const types = () => table("Audit log").getByRole("row").locator("td:nth-child(2)").allInnerTexts();
  await table("Audit log").waitFor();
  const { events } = await api.call("GET", "audit?limit=1000");
  assert.deepEqual((await types()).slice(-events.length).reverse().slice(0, 5), events.slice(0, 5).map(({ type }) => type));
  await page.getByRole("combobox", { name: "Events" }).selectOption("Keys, links and tickets");
  await page.waitForFunction(() => [...document.querySelectorAll("td:nth-child(2)")].every((cell) => /^(key|folder|link|ticket)\./.test(cell.textContent)));
  const created = table("Audit log").getByRole("row").filter({ hasText: "key.created" }).filter({ hasText: "laptop" });
  await created.getByText("Command line").waitFor();
});

test("older events of the audit log are read on demand", async () => {
  for (let count = 0; count < 110; count += 1) {
    const { webhookId } = await api.call("POST", "webhooks", { url: `https://localhost:1/${count}`, events: ["prompt.failed"] });
    await api.call("DELETE", `webhooks/${webhookId}`);
  }
  await page.getByRole("combobox", { name: "Events" }).selectOption("All events");
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 200);
  await page.getByRole("button", { name: "Older events" }).click();
  await page.getByRole("button", { name: "Older events" }).waitFor({ state: "detached" });
  const { events } = await api.call("GET", "audit?limit=1000");
  const rows = await table("Audit log").locator("tbody tr").count();
  assert.ok(rows > 220 && rows <= events.length, `${rows} of ${events.length}`);
});

test("the configuration has the changed values with their sources, and all of them on demand", async () => {
  await open("Configuration");
  const rows = table("Configuration").getByRole("row");
  await rows.filter({ hasText: "webhooks.allowed_hosts" }).getByText(/gateway\.toml:\d+/).waitFor();
  assert.equal(await rows.filter({ hasText: "retention.max_age" }).count(), 0);
  assert.equal((await page.content()).includes(TOKEN), false);
  await page.getByLabel("Only values that differ from the default").uncheck();
  await page.getByRole("searchbox", { name: "Filter keys and values" }).fill("max_age");
  await rows.filter({ hasText: "retention.max_age" }).getByText("default").waitFor();
  assert.equal(await rows.filter({ hasText: "webhooks.allowed_hosts" }).count(), 0);
});

test("the diagnostics are saved as the gateway sends them, without secrets and texts", async () => {
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download diagnostics" }).click()]);
  assert.equal(download.suggestedFilename(), "acp-gateway-diagnostics.json");
  const text = await readFile(await download.path(), "utf8");
  const saved = JSON.parse(text);
  const expected = await api.call("GET", "diagnostics");
  assert.deepEqual(Object.keys(saved), Object.keys(expected));
  assert.deepEqual(saved.configuration, expected.configuration);
  assert.match(saved.agents.find(({ name }) => name === "broken").lastFailure.stderrTail, /no model for/);
  for (const secret of [api.key, memberKey, TOKEN, PROMPT]) assert.equal(text.includes(secret), false, secret);
});

for (const colorScheme of ["light", "dark"]) {
  test(`each section fits on a phone and a desktop: ${colorScheme}`, async () => {
    await page.emulateMedia({ colorScheme });
    for (const [name, viewport] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
      await page.setViewportSize(viewport);
      for (const section of SECTIONS) {
        await open(section);
        await page.getByText("Loading…").waitFor({ state: "detached" });
        const fits = () => [document.documentElement, document.querySelector(".tasks")].every((area) => area.scrollWidth <= area.clientWidth);
        assert.equal(await page.evaluate(fits), true, `${section} has no overflow on a ${name}`);
        await checkAccessibility(page);
        await screenshot(page, `admin-${section.replace(" ", "-").toLowerCase()}-${name}-${colorScheme}`);
      }
    }
  });
}

test("the page loads its values again, and not while it is hidden", async () => {
  const other = await Watch.page(browser, gateway.origin, { viewport: DESKTOP });
  await other.page.clock.install();
  await other.page.goto(await gateway.adminLink());
  await other.page.getByRole("link", { name: "Administration" }).click();
  await other.page.getByText("Updated at").waitFor();
  const hide = (hidden) => other.page.evaluate((hidden) => Object.defineProperty(document, "hidden", { value: hidden, configurable: true }), hidden);
  await hide(true);
  // The time of a slow machine does not count from here on.
  await other.page.clock.pauseAt(await other.page.evaluate(() => Date.now() + 10_000));
  const asked = [];
  other.page.on("request", (request) => request.url().endsWith("/v1/diagnostics") && asked.push(request));
  await other.page.clock.runFor(30_000);
  await hide(false);
  const response = other.page.waitForResponse((response) => response.url().endsWith("/v1/diagnostics"));
  await other.page.clock.runFor(5_000);
  await response;
  assert.equal(asked.length, 1);
  await other.close();
});

test("a key without the scope gets no entry and no data", async () => {
  const other = await Watch.page(browser, gateway.origin, { viewport: DESKTOP });
  const asked = [];
  other.page.on("request", (request) => /\/v1\/(diagnostics|keys|audit)/.test(request.url()) && asked.push(request.url()));
  await other.page.goto(`${gateway.origin}/#key=${await gateway.key("ada", "read,prompt")}`);
  await other.page.getByRole("link", { name: "Tasks" }).waitFor();
  await other.page.getByText("Signed in as ada").waitFor();
  assert.equal(await other.page.getByRole("link", { name: "Administration" }).count(), 0);
  await other.page.goto(`${gateway.origin}/#/admin/keys`);
  await other.page.getByText("This key may not manage the gateway.").waitFor();
  await checkAccessibility(other.page);
  assert.deepEqual(asked, []);
  await other.close();
});
