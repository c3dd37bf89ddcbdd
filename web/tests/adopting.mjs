// Sessions of the agent's own store: a person continues one of them on the page, with its history.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { oneChat } from "./support/one_chat.mjs";

const agent = fileURLToPath(new URL("support/remembering_agent.mjs", import.meta.url));
const folder = await realpath(await mkdtemp(path.join(tmpdir(), "acp-gateway-earlier-")));
after(() => rm(folder, { recursive: true, force: true }));
const args = `args = ${JSON.stringify([agent, folder])}`;
const config = `[agents.remembering]\ncommand = ${JSON.stringify(process.execPath)}\n${args}\n\n[workspaces]\nallow = [${JSON.stringify(folder)}]\n`;
const { page, chat, gateway } = await oneChat({ config, agent: /remembering/, link: (started) => started.adminLink(), viewport: { width: 1280, height: 800 } });

test("a session of the agent is continued, with its history", async () => {
  await page.goto(`${gateway.origin}/#/`);
  await page.getByRole("button", { name: "Continue a session of remembering…" }).click();
  const dialog = page.getByRole("dialog", { name: "Sessions of remembering" });
  await dialog.getByRole("button", { name: /Work from a terminal/ }).waitFor();
  await checkAccessibility(page);
  await screenshot(page, "agent-sessions-light");
  await dialog.getByRole("button", { name: /Work from a terminal/ }).click();
  await page.waitForURL(/#\/s\/[0-9a-f-]+$/);
  await page.getByText("We keep the queue.").waitFor();
  await page.getByText("What did we decide?").waitFor();
  await chat.send("Go on");
  await chat.ended("Finished");
  assert.match(await chat.answer.textContent(), /You wrote: Go on/);
});

test("a session that is here already is opened", async () => {
  const address = page.url();
  await page.goto(`${gateway.origin}/#/`);
  await page.getByRole("button", { name: "Continue a session of remembering…" }).click();
  await page.getByRole("button", { name: /Work from a terminal/ }).filter({ hasText: "here already" }).click();
  await page.waitForURL(address);
});
