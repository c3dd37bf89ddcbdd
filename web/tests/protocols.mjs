// A permission request that the page and clients of the chat protocols see at the same time.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Api } from "./support/api.mjs";
import { launch, screenshot, Watch } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { Gateway } from "./support/gateway.mjs";

let browser;
let gateway;
let api;
before(async () => {
  browser = await launch();
  gateway = await Gateway.start({ config: '[agents.demo]\nbuiltin = "demo"\n' });
  api = new Api(gateway.link);
});
after(async () => {
  await browser?.close();
  await gateway?.end();
});

async function request(path, body) {
  const headers = { Authorization: `Bearer ${api.key}`, "Content-Type": "application/json" };
  const init = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
  const response = await fetch(`${api.origin}/${path}`, init);
  const text = await response.text();
  assert.equal(response.status, 200, text);
  const lines = text.split("\n").filter((line) => line.startsWith("data: ") && line !== "data: [DONE]");
  return lines.map((line) => JSON.parse(line.slice("data: ".length)));
}

const run = (session, runId, resume) =>
  request("ag-ui/demo", { threadId: session, runId, protocolVersion: "1.0", messages: [], tools: [], context: [], resume });

/** How each protocol shows the request, and how it answers. */
const CLIENTS = {
  "the AI SDK": {
    shown: async (session) => (await request(`ai-sdk/demo/${session}/stream`)).find(({ type }) => type === "tool-approval-request").approvalId,
    answer: (session, prompt, id) => {
      const approval = { id, approved: true };
      const part = { type: "dynamic-tool", toolCallId: "x", state: "approval-responded", approval };
      return request("ai-sdk/demo", { id: session, messages: [{ id: "of the client", role: "assistant", parts: [part] }] });
    },
    ended: (frames) => frames.at(-1).finishReason === "stop",
  },
  "AG-UI": {
    shown: async (session) => (await run(session, "look")).at(-1).outcome.interrupts[0].id,
    answer: (session, _, id) => run(session, "answer", [{ interruptId: id, status: "resolved", payload: { approved: true } }]),
    ended: (frames) => frames.at(-1).outcome.type === "success",
  },
  responses: {
    shown: async (session, prompt) => {
      const frames = await request(`openai/v1/responses/resp_${session}_${prompt}?stream=true`);
      return frames.at(-1).response.output.find(({ type }) => type === "mcp_approval_request").id.replace("mcpr_", "");
    },
    answer: (session, prompt, id) => {
      const input = [{ type: "mcp_approval_response", approval_request_id: `mcpr_${id}`, approve: true }];
      return request("openai/v1/responses", { model: "demo", previous_response_id: `resp_${session}_${prompt}`, input, stream: true });
    },
    ended: (frames) => frames.at(-1).response.status === "completed",
  },
};

/** A page with a session whose turn waits for a permission. */
async function asked() {
  const watch = await Watch.page(browser, gateway.origin);
  await watch.page.goto(gateway.link);
  const chat = new Chat(watch.page);
  await chat.start(/demo/);
  await chat.set("Pace", "instant");
  const session = new URL(watch.page.url()).hash.split("/").at(-1);
  await chat.send("/diff");
  await chat.permission.waitFor();
  return { watch, chat, session, prompt: "p1", id: `${session}_p1_${await api.request(session)}` };
}

/** The answers that the agent got. */
async function answers(session) {
  const { events } = await api.call("GET", `sessions/${session}/events?types=request.resolved&limit=100`, undefined, { Accept: "application/json" });
  return events.filter(({ type }) => type === "request.resolved").length;
}

describe("a permission request on the page and in a chat protocol", () => {
  for (const [name, client] of Object.entries(CLIENTS)) {
    test(`is answered through ${name}`, async () => {
      const { watch, chat, session, prompt, id } = await asked();
      assert.equal(await client.shown(session, prompt), id);
      const frames = await client.answer(session, prompt, id);
      assert.ok(client.ended(frames), JSON.stringify(frames.at(-1)));
      await chat.permission.waitFor({ state: "hidden" });
      await chat.answer.getByText("copes with an empty name").waitFor();
      await screenshot(watch.page, `protocols-${name.replaceAll(" ", "-")}`);
      assert.equal(await answers(session), 1);
      await watch.close();
    });
  }

  test("is answered on the page, and the clients that come too late see the end of the turn", async () => {
    const { watch, chat, session, prompt, id } = await asked();
    for (const client of Object.values(CLIENTS)) assert.equal(await client.shown(session, prompt), id);
    await chat.permission.getByRole("button", { name: /Allow/ }).first().click();
    await chat.answer.getByText("copes with an empty name").waitFor();
    for (const [name, client] of Object.entries(CLIENTS)) {
      const frames = await client.answer(session, prompt, id);
      assert.ok(client.ended(frames), `${name}: ${JSON.stringify(frames.at(-1))}`);
    }
    assert.equal(await answers(session), 1);
    await watch.close();
  });
});
