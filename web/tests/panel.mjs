// The panel beside the conversation: plan, changes with comments and reverts, files, terminals and events.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Api } from "./support/api.mjs";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";
import { BROKEN, FIXED, project } from "./support/project.mjs";

const agent = fileURLToPath(new URL("support/fixing_agent.mjs", import.meta.url));
const { page, chat, gateway } = await oneChat({ config: nodeAgent("fixer", agent), agent: /fixer/, viewport: { width: 1440, height: 900 }, allowFailedRequests: true });
const api = new Api(gateway.link);
const folder = await project(gateway);
const session = await api.session("fixer", { cwd: folder });
await page.goto(`${gateway.origin}/#/s/${session}`);
await chat.message.waitFor();

const panel = page.getByRole("complementary", { name: "Details" });
const pane = panel.getByRole("tabpanel");
const open = (tab) => panel.getByRole("tab", { name: new RegExp(`^${tab}`) }).click();
const changed = (name) => pane.getByRole("region", { name, exact: true });

async function allow(title) {
  await chat.permission.filter({ hasText: title }).waitFor();
  await chat.permission.getByRole("button", { name: "Allow once" }).and(page.locator('[aria-disabled="false"]')).click();
}

test("the plan of the agent is followed in the panel", async () => {
  await page.keyboard.press("Alt+p");
  await pane.getByText("The agent has made no plan yet.").waitFor();
  await chat.send("Fix the failing test");
  await allow("node --test");
  await allow("Edit add.mjs");
  await allow("node --test");
  await chat.ended("Finished");
  await pane.getByText("3 of 3 done").waitFor();
  assert.equal(await pane.getByRole("progressbar", { name: "Completed steps" }).getAttribute("value"), "3");
  await checkAccessibility(page);
  await screenshot(page, "panel-plan-light");
});

test("the commands of the agent and their output are in the panel", async () => {
  await open("Terminals");
  assert.match(await panel.getByRole("tab", { name: /^Terminals/ }).textContent(), /2$/);
  await pane.getByText("exit 1", { exact: true }).waitFor();
  await pane.getByText("exit 0", { exact: true }).waitFor();
  await checkAccessibility(page);
});

test("files of the session are listed and read", async () => {
  await writeFile(path.join(folder, "empty.txt"), "");
  await writeFile(path.join(folder, "long.txt"), "0123456789abcde\n".repeat(20_000));
  await open("Files");
  await pane.getByRole("button", { name: "add.mjs" }).click();
  await pane.getByRole("region", { name: "Content of add.mjs" }).getByText("Adds two numbers").waitFor();
  assert.equal(await pane.getByRole("region", { name: "Content of add.mjs" }).textContent(), FIXED);
  await checkAccessibility(page);
  await pane.getByRole("button", { name: "All files" }).click();
  await pane.getByRole("button", { name: "empty.txt" }).click();
  await pane.getByRole("region", { name: "Content of empty.txt" }).waitFor({ state: "attached" });
  assert.equal(await pane.getByRole("alert").count(), 0);
  await pane.getByRole("button", { name: "All files" }).click();
  await pane.getByRole("button", { name: "long.txt" }).click();
  await pane.getByText("Only the first 256 KiB are shown.").waitFor();
  await pane.getByRole("button", { name: "All files" }).click();
  await pane.getByRole("button", { name: "add.test.mjs" }).waitFor();
  for (const name of ["empty.txt", "long.txt"]) await rm(path.join(folder, name));
});

test("folders are opened and left, and come before the files", async () => {
  await mkdir(path.join(folder, "zoo", "birds"), { recursive: true });
  await writeFile(path.join(folder, "zoo", "birds", "owl.txt"), "Hoo.\n");
  await open("Plan");
  await open("Files");
  await pane.getByRole("button", { name: "zoo" }).waitFor();
  assert.equal(await pane.getByRole("listitem").first().textContent(), " zoo");
  await pane.getByRole("button", { name: "zoo" }).click();
  await pane.getByRole("button", { name: "birds" }).click();
  await pane.getByRole("list", { name: "Files in zoo/birds" }).waitFor();
  await pane.getByRole("button", { name: "owl.txt" }).click();
  await pane.getByRole("region", { name: "Content of zoo/birds/owl.txt" }).getByText("Hoo.").waitFor();
  await pane.getByRole("button", { name: "All files" }).click();
  await checkAccessibility(page);
  await screenshot(page, "panel-folder-light");
  await pane.getByRole("button", { name: "Folder above" }).click();
  await pane.getByRole("list", { name: "Files in zoo", exact: true }).waitFor();
  await pane.getByRole("button", { name: "Folder above" }).click();
  await pane.getByRole("button", { name: "add.mjs" }).waitFor();
  await rm(path.join(folder, "zoo"), { recursive: true });
});

test("events are shown as the log has them, while they arrive, and filtered", async () => {
  await open("Events");
  await pane.getByText("prompt.completed").first().waitFor();
  await api.call("PATCH", `sessions/${session}`, { title: "Sums" }, { "Content-Type": "application/merge-patch+json" });
  await pane.getByText("session.changed").first().waitFor();
  await pane.getByRole("searchbox").fill("request.");
  await pane.getByText("request.resolved").first().click();
  assert.match(await pane.getByRole("group", { name: /^Event / }).first().textContent(), /"optionId": "once"/);
  await checkAccessibility(page);
  await screenshot(page, "panel-events-light");
});

test("changes since the start of the session include those of commands", async () => {
  await writeFile(path.join(folder, "notes.txt"), "one\ntwo\n");
  await rm(path.join(folder, "add.test.mjs"));
  await open("Changes");
  await changed("add.mjs").getByText("+1").waitFor();
  await changed("notes.txt").getByText("new").waitFor();
  await changed("add.test.mjs").getByText("deleted").waitFor();
  assert.deepEqual(await changed("add.mjs").locator(".diff-added, .diff-removed").allTextContents(), ["3-  return a - b;", "3+  return a + b;"]);
  await checkAccessibility(page);
  await screenshot(page, "panel-changes-light");
});

test("comments on lines become a message", async () => {
  await changed("add.mjs").getByRole("button", { name: /return a \+ b/ }).click();
  await changed("add.mjs").getByLabel("Comment on the line").fill("Check for numbers first.");
  await page.keyboard.press("Enter");
  await changed("add.mjs").getByText("Check for numbers first.").waitFor();
  assert.match(await page.evaluate(() => document.activeElement.textContent), /return a \+ b/, "the focus is at the line again");
  await changed("add.mjs").getByRole("button", { name: /return a - b/ }).click();
  await changed("add.mjs").getByLabel("Comment on the line").fill("Why was this here?");
  await changed("add.mjs").getByRole("button", { name: "Add the comment" }).click();
  await checkAccessibility(page);
  await screenshot(page, "panel-comment-light");
  await open("Files");
  await open("Changes");
  await pane.getByRole("button", { name: "Write 2 comments as a message" }).click();
  const message = await chat.message.inputValue();
  assert.ok(message.includes("In @add.mjs, line 3:\n\n> return a + b;\n\nCheck for numbers first."), message);
  assert.ok(message.includes("In @add.mjs, the removed line 3:\n\n> return a - b;\n\nWhy was this here?"), message);
  await chat.message.fill("");
});

test("a change and whole files are reverted", async () => {
  const text = (name) => readFile(path.join(folder, name), "utf8").catch((error) => error.code);
  await changed("add.mjs").getByRole("button", { name: "Revert", exact: true }).click();
  await changed("add.mjs").waitFor({ state: "detached" });
  assert.equal(await text("add.mjs"), BROKEN);
  const choose = async (name, action) => {
    await changed(name).getByRole("button", { name: `More about ${name}` }).click();
    await changed(name).getByRole("button", { name: action }).click();
  };
  // A new file is lost for good, so both ways to remove it ask first.
  const asks = changed("notes.txt").getByRole("group", { name: "Delete this file, which did not exist before?" });
  await choose("notes.txt", "Delete this new file");
  await asks.waitFor();
  await checkAccessibility(page);
  await screenshot(page, "panel-delete-light");
  await page.keyboard.press("Enter");
  await asks.waitFor({ state: "detached" });
  assert.equal(await text("notes.txt"), "one\ntwo\n");
  await changed("notes.txt").getByRole("button", { name: "notes.txt", exact: false }).first().click();
  await changed("notes.txt").getByRole("button", { name: "Revert", exact: true }).click();
  await asks.waitFor();
  await page.keyboard.press("Escape");
  await asks.waitFor({ state: "detached" });
  assert.equal(await panel.isVisible(), true, "Escape closes the question alone");
  assert.equal(await text("notes.txt"), "one\ntwo\n");
  await changed("notes.txt").getByRole("button", { name: "Revert", exact: true }).click();
  await asks.getByRole("button", { name: "Delete" }).click();
  await changed("notes.txt").waitFor({ state: "detached" });
  // A deleted file returns without a question.
  await choose("add.test.mjs", "Revert the whole file");
  await changed("add.test.mjs").waitFor({ state: "detached" });
  assert.equal(await text("notes.txt"), "ENOENT");
  assert.match(await text("add.test.mjs"), /add\(2, 3\)/);
  await pane.getByText("Nothing has changed.").waitFor();
});

test("a file that changed meanwhile is not reverted", async () => {
  const file = path.join(folder, "add.mjs");
  await writeFile(file, FIXED);
  await open("Plan");
  await open("Changes");
  await changed("add.mjs").getByRole("button", { name: /return a \+ b/ }).waitFor();
  await writeFile(file, `${FIXED}// more\n`);
  await changed("add.mjs").getByRole("button", { name: "Revert", exact: true }).click();
  await page.getByRole("alert").waitFor();
  assert.equal(await readFile(file, "utf8"), `${FIXED}// more\n`);
  await page.getByRole("button", { name: "Dismiss" }).click();
});

test("the changes of a whole file are undone after a question", async () => {
  const file = path.join(folder, "add.mjs");
  await changed("add.mjs").getByRole("button", { name: "More about add.mjs" }).click();
  await changed("add.mjs").getByRole("button", { name: "Revert the whole file" }).click();
  const asks = changed("add.mjs").getByRole("group", { name: "Undo all changes to this file?" });
  await asks.getByRole("button", { name: "Keep" }).click();
  assert.equal(await readFile(file, "utf8"), `${FIXED}// more\n`);
  await writeFile(file, FIXED);
});

test("the keyboard moves between the tabs and closes the panel", async () => {
  const tab = (name) => panel.getByRole("tab", { name: new RegExp(`^${name}`) });
  await tab("Changes").focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await tab("Files").getAttribute("aria-selected"), "true");
  assert.equal(await tab("Files").evaluate((element) => element === document.activeElement), true);
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Escape");
  await panel.waitFor({ state: "detached" });
  assert.equal(await chat.message.evaluate((field) => field === document.activeElement), true);
  await page.reload();
  await chat.message.waitFor();
  assert.equal(await panel.count(), 0, "a closed panel stays closed");
});

test("a finger pulls the sheet of a phone away", async () => {
  await page.setViewportSize({ width: 390, height: 844 });
  await page.keyboard.press("Alt+p");
  await panel.waitFor();
  await screenshot(page, "panel-sheet-phone");
  const head = panel.locator(".panel-tabs");
  const pull = (by) =>
    head.evaluate((element, distance) => {
      const { left, top } = element.getBoundingClientRect();
      const touch = (type, below) => element.dispatchEvent(new PointerEvent(type, { bubbles: true, pointerType: "touch", clientX: left + 20, clientY: top + below }));
      touch("pointerdown", 10);
      touch("pointermove", 10 + distance);
      const moved = element.parentElement.style.transform;
      touch("pointerup", 10 + distance);
      return moved;
    }, by);
  assert.equal(await pull(40), "translateY(40px)");
  assert.equal(await panel.evaluate((element) => element.style.transform), "", "a short pull changes nothing");
  assert.equal(await panel.isVisible(), true);
  await pull(200);
  await panel.waitFor({ state: "detached" });
  assert.equal(await chat.message.evaluate((field) => field === document.activeElement), true);
});

test("a call that was rejected is not shown as a failure", async () => {
  await page.setViewportSize({ width: 1440, height: 900 });
  await chat.send("Fix the failing test again");
  await chat.permission.getByRole("button", { name: "Reject" }).and(page.locator('[aria-disabled="false"]')).click();
  await chat.ended("Finished");
  await chat.lastTurn.locator(".tool").filter({ hasText: "node --test" }).getByText("not run").waitFor();
  assert.equal(await chat.lastTurn.getByText("failed", { exact: true }).count(), 0);
});
