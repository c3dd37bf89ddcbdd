// Every state of the page at three widths, in both themes: accessible, not wider than the window, and with targets for a finger
// on a phone. The pictures are the ones that people review, and that the documents use.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import path from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Api } from "./support/api.mjs";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";
import { project } from "./support/project.mjs";

const support = (name) => fileURLToPath(new URL(`support/${name}`, import.meta.url));
const config = `[agents.demo]\nbuiltin = "demo"\n${nodeAgent("fixer", support("fixing_agent.mjs"))}${nodeAgent("terse", support("terse_agent.mjs"))}`;
const { page, chat, gateway } = await oneChat({ config, agent: /demo/, viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", allowFailedRequests: true });
const api = new Api(gateway.link);
after(() => console.log(`# ${taken} pictures`));
let taken = 0;

const SIZES = { phone: { width: 390, height: 844 }, laptop: { width: 1280, height: 800 }, desktop: { width: 1920, height: 1080 } };
/** The theme of the picture at each width. */
const PICTURED = { phone: "light", laptop: "dark", desktop: "light" };

/** Looks at the present state at all widths, in both themes. */
async function look(name) {
  for (const [device, size] of Object.entries(SIZES)) {
    await page.setViewportSize(size);
    // A question is small while the focus is in the message field. With a touch screen, it is not there.
    const question = page.getByRole("button", { name: "Show the question" });
    if (device === "phone" && (await question.isVisible())) await question.click();
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await checkAccessibility(page);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `${name} is wider than ${device}`);
      if (device === "phone" && colorScheme === "light") assert.deepEqual(await page.evaluate(smallTargets), [], name);
      if (PICTURED[device] !== colorScheme) continue;
      await screenshot(page, `state-${name}-${device}`);
      taken += 1;
    }
  }
  await page.setViewportSize(SIZES.laptop);
  await page.emulateMedia({ colorScheme: "light" });
}

/** The picture of a component for `web/STYLE.md`, in both themes. */
async function component(name, locator) {
  const folder = process.env.ACP_GATEWAY_COMPONENTS;
  if (!folder) return;
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    await locator.screenshot({ path: path.join(folder, `${name}-${colorScheme}.png`), animations: "disabled" });
  }
}

/** Visible controls that are lower than 44 px. Links in a text, and lines of a diff, are as high as their line. */
function smallTargets() {
  const controls = [...document.querySelectorAll("button, select, input:not([type=checkbox], [type=radio], .hidden), summary, a.button, a.link-button, a.session-link, a.sidebar-action")];
  const isShown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && element.getClientRects().length > 0;
  const height = (element) => (element.closest("label, .session-search-place") ?? element).getBoundingClientRect().height;
  return controls
    .filter((element) => isShown(element) && !element.matches(".line-comment, .skip") && height(element) > 1 && Math.round(height(element)) < 44)
    .map((element) => `${element.tagName} ${element.className} ${element.textContent.trim().slice(0, 40)} ${height(element)}`);
}

async function session(agent, members) {
  const id = await api.session(agent, members);
  await page.goto(`${gateway.origin}/#/s/${id}`);
  await chat.message.waitFor();
  return id;
}

const armed = () => chat.permission.locator('[aria-disabled="false"]').first().waitFor();

test("an empty session", () => look("empty"));

test("a finished turn", async () => {
  await chat.send("/tour");
  await chat.ended("Finished");
  await look("tour");
  await component("message", chat.lastTurn.locator(".from-person").first());
  await component("activity", chat.lastTurn.locator(".activity").first());
  await component("plan", chat.lastTurn.locator(".plan"));
  await component("thought", chat.lastTurn.locator(".thought").first());
  await component("end", chat.lastTurn.locator(".turn-foot"));
  await component("composer", page.locator(".composer"));
  await component("header", page.locator(".session > .bar"));
});

test("formatted text", async () => {
  await chat.send("/markdown");
  await chat.ended("Finished");
  await look("markdown");
  await component("text", chat.lastTurn.locator(".markdown").first());
  await component("code", chat.lastTurn.locator(".code-block").first());
});

test("an approval with a change", async () => {
  await chat.send("/diff");
  await armed();
  await look("approval-diff");
  await component("diff", chat.permission.locator(".diff"));
  await chat.permission.getByRole("button", { name: "Allow once" }).click();
  await chat.ended("Finished");
});

test("a form", async () => {
  await chat.send("/form");
  await chat.question.waitFor();
  await page.getByRole("button", { name: /Send/ }).first().waitFor();
  await look("form");
  await component("form", chat.question);
  await page.getByRole("button", { name: "Stop" }).or(page.getByRole("button", { name: "Refuse" })).first().click();
  await chat.lastTurn.locator(".turn-end, .problem").waitFor();
});

test("a running turn with a queued message", async () => {
  await session("demo");
  await chat.send("/slow 120");
  await chat.send("Then run the whole suite once with --release");
  await chat.send("Update CHANGELOG under “Fixed”, and name the two modules that read the clock of the machine before");
  await chat.send("Open a pull request");
  await chat.queued.nth(2).getByRole("button", { name: "Edit", exact: true }).waitFor();
  await look("queue");
  await component("queue", page.getByRole("region", { name: "Queue" }));
  await component("working", page.locator(".working"));
  await chat.message.fill("/");
  await page.getByRole("listbox").waitFor();
  await look("commands");
  await component("suggestions", page.getByRole("listbox"));
  await chat.message.fill("");
  await page.getByRole("button", { name: "Stop", exact: true }).click();
});

test("an approval of a risky command", async () => {
  await session("terse");
  await chat.send("run");
  await armed();
  await chat.permission.getByText("Deletes files").waitFor();
  assert.equal(await chat.permission.locator(".primary").count(), 0, "no answer is proposed");
  await look("approval-command");
  await component("approval", chat.permission);
  await component("sessions", page.locator(".session-groups"));
});

test("the inbox", async () => {
  await page.goto(`${gateway.origin}/#/inbox`);
  await chat.permission.waitFor();
  await look("inbox");
  await chat.permission.getByRole("button", { name: "Allow" }).and(page.locator('[aria-disabled="false"]')).click();
  await page.getByText("No session needs an answer.").waitFor();
});

test("a failed turn", async () => {
  await session("terse");
  await chat.send("fail");
  await chat.lastTurn.locator(".problem").waitFor();
  await look("failed");
  await component("problem", chat.lastTurn.locator(".problem"));
});

test("long words, another direction and nothing but symbols", async () => {
  await session("demo");
  await chat.send(`مرحبا، أصلح الاختبار الفاشل من فضلك ${"supercalifragilistic".repeat(12)} ${"→".repeat(80)}`);
  await chat.lastTurn.locator(".turn-end").filter({ hasText: "Finished" }).waitFor();
  await look("words");
});

test("the panel with plan, changes, files and events", async () => {
  const id = await session("fixer", { cwd: await project(gateway) });
  await chat.send("Fix the failing test");
  for (let asked = 0; asked < 3; asked += 1) {
    await armed();
    const title = await chat.permission.locator(".permission-title").textContent();
    await chat.permission.getByRole("button", { name: "Allow once" }).click();
    await page.waitForFunction((before) => document.querySelector(".permission-title")?.textContent !== before || document.querySelector(".turn-end:not(.working)"), title);
  }
  await chat.ended("Finished");
  await look("fixed");
  await page.keyboard.press("Alt+p");
  const panel = page.getByRole("complementary", { name: "Details" });
  for (const [tab, shown] of [["Plan", "3 of 3 done"], ["Changes", "return a + b;"], ["Files", "add.test.mjs"], ["Terminals", "exit 0"], ["Events", "prompt.completed"]]) {
    await panel.getByRole("tab", { name: new RegExp(`^${tab}`) }).click();
    await panel.getByRole("tabpanel").getByText(shown).first().waitFor();
    await look(`panel-${tab.toLowerCase()}`);
    if (tab === "Changes") await component("changes", panel);
    if (tab === "Terminals") await component("terminal", panel.locator(".terminal").first());
  }
  await page.keyboard.press("Alt+p");
  await api.call("POST", `sessions/${id}/close`);
  await page.getByText("This session is closed").waitFor();
  await look("closed");
});

test("the start page and its menus", async () => {
  await page.goto(`${gateway.origin}/#/`);
  await page.getByRole("button", { name: /^Agent:/ }).waitFor();
  await look("start");
  await component("start", page.locator(".start-form"));
  await chat.openAgents();
  await look("agents");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /^Folder:/ }).click();
  await page.getByRole("button", { name: "Another folder…" }).click();
  await page.getByRole("list", { name: "Workspace roots" }).waitFor();
  await look("folders");
  await page.keyboard.press("Escape");
});

test("settings, shortcuts and tasks", async () => {
  await page.getByRole("button", { name: "Settings" }).click();
  await look("settings");
  await component("menu", page.getByRole("group", { name: "Settings" }));
  await page.keyboard.press("Escape");
  await page.keyboard.press("Tab");
  await page.locator("body").press("?");
  await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await look("shortcuts");
  await page.getByRole("button", { name: "Done" }).click();
  await page.goto(`${gateway.origin}/#/tasks`);
  await page.getByRole("heading", { name: "Tasks" }).waitFor();
  await look("tasks");
});

test("the page without the gateway, and without a key", async () => {
  await session("demo");
  await gateway.kill();
  await page.locator(".banner").waitFor();
  await look("lost");
  await component("banner", page.locator(".banner"));
  await gateway.restart();
  await page.locator(".banner").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Key or link").waitFor();
  await look("key");
});
