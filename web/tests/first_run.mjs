// The first run: the printed link of a new gateway, an agent by one press, and its first answer. With keys and gateways that may not
// add agents, and with installations that fail.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";
import { checkAccessibility, launch, screenshot, Watch } from "./support/browser.mjs";
import { Gateway } from "./support/gateway.mjs";

const DESKTOP = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
const AGENT = `#!/usr/bin/env node
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\\n");
const methods = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, authMethods: [{ id: "login", name: "Log in with an account" }] }),
  "session/new": () => ({ sessionId: "s" }),
  "session/prompt": ({ sessionId, prompt: [{ text }] }) => {
    const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text: "You said " + text } };
    send({ method: "session/update", params: { sessionId, update } });
    return { stopReason: "end_turn" };
  },
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id !== undefined) send({ id, result: methods[method]?.(params) ?? {} });
});
`;

let browser;
let registry;

before(async () => {
  browser = await launch();
  registry = await Registry.start();
});
after(async () => {
  await browser?.close();
  await registry?.stop();
});

/** A registry on loopback whose download waits in its middle until the test permits its end. */
class Registry {
  static async start() {
    const registry = new Registry();
    registry.server = createServer((request, response) => void registry.answer(request.url, response));
    await new Promise((resolve) => registry.server.listen(0, "127.0.0.1", resolve));
    registry.origin = `http://127.0.0.1:${registry.server.address().port}`;
    registry.wait();
    return registry;
  }

  wait() {
    this.permitted = new Promise((resolve) => (this.permit = resolve));
  }

  async answer(url, response) {
    if (url === "/registry.json") {
      response.end(JSON.stringify({ version: "1.0.0", agents: this.agents() }));
    } else {
      response.setHeader("Content-Length", Buffer.byteLength(AGENT));
      response.write(AGENT.slice(0, 200));
      await this.permitted;
      response.end(AGENT.slice(200));
    }
  }

  agents() {
    const { arch } = process;
    const target = `linux-${{ x64: "x86_64", arm64: "aarch64" }[arch] ?? arch}`;
    const binary = (more) => ({ [target]: { archive: `${this.origin}/agent`, cmd: "./bin/gemini", ...more } });
    const entry = (id, name, distribution) => ({ id, name, version: "1.0.0", description: "Answers what you say", distribution });
    return [
      entry("gemini", "Gemini CLI", { binary: binary({}) }),
      entry("broken", "Broken", { binary: binary({ sha256: "0".repeat(64), cmd: "./bin/broken" }) }),
      entry("elsewhere", "Elsewhere", { binary: { "plan9-mips": { archive: "https://x.example/", cmd: "x" } } }),
    ];
  }

  get config() {
    return `[registry]\nsource = "${this.origin}/registry.json"\n`;
  }

  stop() {
    this.permit();
    return new Promise((resolve) => this.server.close(resolve));
  }
}

/** A page of a gateway, which ends with the test. */
async function open(t, options, link = (gateway) => gateway.link, view = {}) {
  const gateway = await Gateway.start(options);
  t.after(() => gateway.end());
  const watch = await Watch.page(browser, gateway.origin, { colorScheme: "light", viewport: DESKTOP, reducedMotion: "reduce", ...view });
  const { page } = watch;
  await page.goto(await link(gateway));
  const section = page.getByRole("region", { name: "Add an agent" });
  return { gateway, watch, page, section };
}

const install = (section, name) => section.getByRole("button", { name: `Install ${name} 1.0.0` });

/** Sends a message to the chosen agent, and waits for its answer. */
async function converse(page, text) {
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
  await page.getByText(`You said ${text}`).waitFor();
}

test("the printed link leads to an agent by one press, and to its first answer", async (t) => {
  registry.wait();
  const { watch, page, section } = await open(t, { config: registry.config });
  const button = install(section, "Gemini CLI");
  await button.waitFor();
  await section.getByText("Needs a sign-in, or GEMINI_API_KEY").waitFor();
  await section.getByText("Not available for this machine").waitFor();
  await checkAccessibility(page);
  await screenshot(page, "first-run-light");

  await button.focus();
  await page.keyboard.press("Enter");
  await section.getByText("Downloading agent.", { exact: true }).waitFor();
  const progress = section.getByRole("progressbar", { name: "Download" });
  await page.waitForFunction((bar) => bar.getAttribute("value") > 0, await progress.elementHandle());
  assert.equal(await install(section, "Broken").getAttribute("aria-disabled"), "true");
  await checkAccessibility(page);
  await screenshot(page, "first-run-progress");
  // The installation belongs to the gateway, not to the page.
  await page.reload();
  await progress.waitFor();
  registry.permit();

  await section.getByText("To use a key, start the gateway again with GEMINI_API_KEY in its environment.").waitFor();
  await section.getByText("Or sign in: Log in with an account.").waitFor();
  await page.getByRole("button", { name: "Agent: gemini" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "message");
  assert.equal(await button.count(), 0);
  await checkAccessibility(page);
  await screenshot(page, "first-run-added");
  await converse(page, "hello");
  await page.goto(`${watch.origin}/#/`);
  await page.getByText("Add more agents").click();
  await install(page, "Broken").waitFor();
  await watch.close();
});

test("a failed installation has its reason, and can be repeated", async (t) => {
  const { watch, page, section } = await open(t, { config: registry.config }, undefined, { colorScheme: "dark", viewport: PHONE });
  registry.permit();
  const button = install(section, "Broken");
  await button.click();
  const problem = section.getByRole("alert");
  await problem.getByText("broken was not added").waitFor();
  assert.match(await problem.innerText(), /SHA-256 of the archive is [0-9a-f]{64}, not 0{64}/);
  assert.equal(await button.getAttribute("aria-disabled"), "false");
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the page is not wider than the screen");
  await checkAccessibility(page);
  await problem.scrollIntoViewIfNeeded();
  await screenshot(page, "first-run-failed-phone-dark");
  await watch.close();
});

test("an agent on PATH is added by one press", async (t) => {
  const env = async (folder) => {
    const bin = path.join(folder, "bin");
    await mkdir(bin);
    await writeFile(path.join(bin, "gemini"), AGENT);
    await chmod(path.join(bin, "gemini"), 0o755);
    return { PATH: `${bin}:${process.env.PATH}`, GEMINI_API_KEY: "mock" };
  };
  const config = '[agents.demo]\nbuiltin = "demo"\n';
  const { watch, page, section } = await open(t, { config, env }, (gateway) => gateway.adminLink(), { viewport: PHONE });
  await section.getByRole("button", { name: "Add gemini" }).click();
  await section.getByText("It uses GEMINI_API_KEY of the gateway's environment.").waitFor();
  await page.getByRole("button", { name: "Agent: gemini" }).waitFor();
  await checkAccessibility(page);
  await screenshot(page, "first-run-path-phone-light");
  await page.locator("#message").focus();
  await converse(page, "hi");
  await watch.close();
});

test("the registry of the ACP project is loaded only after a press", async (t) => {
  const { watch, page, section } = await open(t, { config: "" });
  const asked = [];
  await page.route("**/v1/registry?default=true", (route) => {
    asked.push(route.request().url());
    const agents = [{ id: "x", name: "Agent X", version: "2.0.0", description: "", kinds: ["npx"], keyVariables: [] }];
    return route.fulfill({ json: { configured: false, agents, nextCursor: null } });
  });
  await section.getByText("The gateway loads the list from cdn.agentclientprotocol.com.").waitFor();
  assert.deepEqual(asked, []);
  await section.getByRole("button", { name: "Show the agents of the ACP registry" }).click();
  await section.getByRole("button", { name: "Install Agent X 2.0.0" }).waitFor();
  assert.equal(asked.length, 1);
  await watch.close();
});

test("a key without the scope admin gets the command for a link", async (t) => {
  const config = `[agents.demo]\nbuiltin = "demo"\n${registry.config}`;
  const { watch, page, section } = await open(t, { config });
  await page.getByText("acp-gateway key create NAME --user owner --scopes read,prompt,approve,files,admin --link").waitFor();
  assert.equal(await section.count(), 0);
  await checkAccessibility(page);
  await watch.close();
});
