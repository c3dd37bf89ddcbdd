// A client of the official TypeScript SDK against /acp that serves files and terminals. Prints one line of JSON for each turn.
//
//   node acp_files.mjs http|ws URL KEY PROMPT...
import * as acp from "acp-sdk-2";
import { createHttpStream } from "acp-sdk-2/experimental/http-client";
import { createWebSocketStream } from "acp-sdk-2/experimental/ws-client";
import WebSocket from "ws";

const [transport, url, key, ...prompts] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${key}` };
const { agent, client } = acp.methods;
setTimeout(() => process.exit(3), 60_000).unref();

const connect = () => transport === "http"
  ? createHttpStream(url, { headers })
  : createWebSocketStream(url.replace(/^http/, "ws"), { protocols: ["acp.v1", `bearer.${key}`], WebSocket });

let text = "";
let calls = [];
const note = (method, params) => {
  const { sessionId, ...rest } = params;
  calls.push({ method, ...rest });
};
const exit = { exitCode: 0 };

const app = acp.client({ name: "acp_files.mjs" })
  .onRequest(client.fs.readTextFile, ({ params }) => (note("read", params), { content: "unsaved" }))
  .onRequest(client.fs.writeTextFile, ({ params }) => (note("write", params), {}))
  .onRequest(client.terminal.create, ({ params }) => (note("create", params), { terminalId: "edit-1" }))
  .onRequest(client.terminal.waitForExit, ({ params }) => (note("wait", params), exit))
  .onRequest(client.terminal.output, ({ params }) => (note("output", params), { output: "ok", truncated: false, exitStatus: exit }))
  .onRequest(client.terminal.release, ({ params }) => (note("release", params), {}))
  .onNotification(client.session.update, ({ params: { update } }) => {
    if (update.sessionUpdate === "agent_message_chunk") text += update.content.text;
  });

await app.connectWith(connect(), async (ctx) => {
  const clientCapabilities = { fs: { readTextFile: true, writeTextFile: true }, terminal: true };
  await ctx.request(agent.initialize, { protocolVersion: 1, clientCapabilities });
  const { sessionId } = await ctx.request(agent.session.new, { cwd: "", mcpServers: [] });
  for (const prompt of prompts) {
    const { stopReason } = await ctx.request(agent.session.prompt, { sessionId, prompt: [{ type: "text", text: prompt }] });
    // The SDK passes an update to its handlers in later microtasks, and resolves the response at once.
    await new Promise((resolve) => setTimeout(resolve, 0));
    process.stdout.write(`${JSON.stringify({ step: "turn", stopReason, text, calls })}\n`);
    [text, calls] = ["", []];
  }
});
process.exit(0);
