// The packages in another project, and their examples as pages of another origin.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Api } from "./support/api.mjs";
import { launch } from "./support/browser.mjs";
import { Gateway } from "./support/gateway.mjs";
import { Project, run, serve } from "./support/packed.mjs";

let project;
before(async () => {
  project = await Project.create();
});
after(() => project?.remove());

const PROGRAM = `
import { type GatewayEvent, GatewayClient, isKnown, type LogEvent, type Session } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { useSession, useSessionState, useSharedConnection } from "@acp-gateway/react";

const client = new GatewayClient({ url: "https://gateway.example", key: "acpg_1" });
export async function start(): Promise<string> {
  const session: Session = await client.createSession({ agent: "demo", prompt: "Hello", modeId: "ask" }, { idempotencyKey: "1" });
  // @ts-expect-error: an agent is required.
  await client.createSession({ prompt: "Hello" });
  return visible(session.sessionId);
}
export function words(event: LogEvent): string {
  return isKnown(event) && event.type === "prompt.completed" ? event.stopReason : "";
}
export function ended(event: GatewayEvent): boolean {
  // @ts-expect-error: no such type.
  return event.type === "prompt.complete";
}
export function Chat({ session }: { session: string }): number {
  const connection = useSharedConnection(client)?.connection ?? null;
  const state = useSessionState(useSession(client, connection, session));
  return state?.log.turns.length ?? 0;
}
`;

describe("another project", () => {
  test("installs both packages without their sources, and has their types", async () => {
    await project.write("program.ts", PROGRAM);
    const [nodeNext, bundler] = ["nodenext", "bundler"].map((kind) => ["--module", kind === "bundler" ? "esnext" : kind, "--moduleResolution", kind]);
    const shared = ["--target", "es2022", "--lib", "es2023,dom,dom.iterable"];
    // The libraries' own declarations are checked too.
    for (const compiler of ["node_modules/typescript", "packages/client/node_modules/typescript"]) {
      await project.check(compiler, "program.ts", [...shared, ...nodeNext]);
      await project.check(compiler, "program.ts", [...shared, ...bundler, "--exactOptionalPropertyTypes"]);
    }
    const files = await run("tar", ["-tzf", "acp-gateway-client-0.0.0.tgz"], project.folder);
    assert.match(files, /package\/dist\/index\.js/);
    assert.match(files, /package\/README\.md/);
    assert.doesNotMatch(files, /package\/(src|tests|example|types\.mjs)/);
  });

  test("imports them in Node without a bundler", async () => {
    const names = "import * as client from '@acp-gateway/client'; import * as react from '@acp-gateway/react'; console.log(typeof client.GatewayClient, typeof react.useSession)";
    assert.equal(await run(process.execPath, ["--input-type=module", "-e", names], project.folder), "function function\n");
  });
});

/** The prompts and the agent's answers, as the log has them. */
async function conversation(api, session) {
  const { events } = await api.call("GET", `sessions/${session}/events?limit=1000`);
  const turns = new Map();
  for (const { type, promptId, prompt, update } of events) {
    if (prompt) turns.set(promptId, [prompt.map(({ text }) => text).join(""), ""]);
    if (type === "session.update" && update.sessionUpdate === "agent_message_chunk") turns.get(promptId)[1] += update.content.text;
  }
  return [...turns.values()].flat();
}

describe("an example on another origin", () => {
  let browser;
  let gateway;
  let site;
  let key;
  before(async () => {
    await project.example("client");
    await project.example("react");
    site = await serve(`${project.folder}/site`, () => gateway.origin);
    gateway = await Gateway.start({ config: `[auth]\nallowed_origins = ["${site.origin}"]\n[agents.demo]\nbuiltin = "demo"\n` });
    key = await gateway.key("web-app", "read,prompt,approve");
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    await gateway?.end();
    site?.close();
  });

  for (const name of ["client", "react"]) {
    test(`${name}: streams text, answers a permission, and loses nothing in a restart of the gateway`, async () => {
      const api = new Api(`${gateway.origin}/#key=${key}`);
      const page = await browser.newPage();
      page.setDefaultTimeout(20_000);
      const seen = [];
      page.on("pageerror", (error) => seen.push(String(error)));
      page.on("console", (message) => message.type() === "error" && !/^Failed to load resource/.test(message.text()) && seen.push(message.text()));
      await page.goto(`${site.origin}/${name}/index.html#${new URLSearchParams({ gateway: gateway.origin, key, agent: "demo" })}`);
      const message = page.getByRole("textbox", { name: "Message" });
      const send = async (text) => {
        await message.fill(text);
        await message.press("Enter");
      };
      const shown = () => page.locator("[role=log] p").allTextContents();
      const has = (words) => page.getByRole("log").getByText(words).last().waitFor();

      await send("/permission");
      await has("the turn waits until you answer it");
      const [session] = (await api.call("GET", "sessions")).sessions;
      await page.getByRole("button", { name: /^Allow/ }).first().click();
      await has("You allowed it");
      assert.equal(await page.getByRole("button", { name: /^Allow/ }).count(), 0);

      await send("/slow 300");
      // The text grows: it is shown while the turn runs.
      const lengths = new Set();
      while (lengths.size < 3) lengths.add((await shown())[3]?.length ?? 0);
      await gateway.kill();
      await page.getByRole("status").getByText("lost").waitFor();
      const before = await shown();
      // A message that did not arrive stays in the field.
      await send("/help");
      await page.getByRole("status").getByText("The gateway cannot be reached.").waitFor();
      assert.equal(await message.inputValue(), "/help");
      await gateway.restart();
      await page.getByRole("status").getByText("live").waitFor();
      await message.press("Enter");
      await has("I am a demo");
      await page.waitForFunction(() => document.querySelector("input").value === "");

      const turns = await api.call("GET", `sessions/${session.sessionId}/prompts`);
      await api.call("GET", `sessions/${session.sessionId}/prompts/${turns.prompts[0].promptId}`, undefined, { Prefer: "wait=20" });
      const logged = await conversation(api, session.sessionId);
      assert.deepEqual(logged.filter((_, index) => index % 2 === 0), ["/permission", "/slow 300", "/help"]);
      await page.waitForFunction((count) => document.querySelector("[role=log]").textContent.length >= count, logged.join("").length);
      assert.deepEqual(await shown(), logged);
      assert.ok(logged[3].startsWith(before[3]), "text that was shown is in the log");
      assert.deepEqual(seen, []);
      await page.close();
    });
  }

  test("the browser's EventSource follows a session with the address that the client returns", async () => {
    const { GatewayClient } = await import(`${project.folder}/node_modules/@acp-gateway/client/dist/index.js`);
    const client = new GatewayClient({ url: gateway.origin, key });
    const { sessionId } = await client.createSession({ agent: "demo", prompt: "/help" });
    const address = await client.sessionEventsUrl(sessionId, { types: ["prompt."] });
    assert.ok(!address.includes(key));
    const page = await browser.newPage();
    await page.goto(`${site.origin}/client/index.html`);
    const types = await page.evaluate((url) => {
      const { promise, resolve, reject } = Promise.withResolvers();
      const source = new EventSource(url);
      const types = [];
      source.onmessage = ({ data }) => {
        const { type } = JSON.parse(data);
        if (type.startsWith("prompt.")) types.push(type);
        if (type === "prompt.completed") resolve(types);
      };
      source.onerror = () => reject(new Error("the gateway refuses the stream"));
      return promise.finally(() => source.close());
    }, address);
    assert.deepEqual(types, ["prompt.started", "prompt.completed"]);
    await page.close();
  });

  test("a page whose origin is not listed gets no answer", async () => {
    const page = await browser.newPage();
    await page.goto(`${site.origin.replace("localhost", "127.0.0.1")}/client/index.html#${new URLSearchParams({ gateway: gateway.origin, key, agent: "demo" })}`);
    await page.getByRole("textbox", { name: "Message" }).fill("/help");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("status").getByText(/may reject pages of http:\/\/127\.0\.0\.1:\d+: add this origin to `auth\.allowed_origins`/).waitFor();
    await page.close();
  });
});
