// A client of the official TypeScript SDK against /acp. Prints one line of JSON for each step.
//
//   node acp.mjs http|ws URL KEY
import * as acp from "acp-sdk-2";
import { createHttpStream } from "acp-sdk-2/experimental/http-client";
import { createWebSocketStream } from "acp-sdk-2/experimental/ws-client";
import WebSocket from "ws";

const [transport, url, key] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${key}` };
const { agent, client } = acp.methods;

// A browser cannot set headers of a WebSocket, so the key is one of the subprotocols.
const connect = () => transport === "http"
  ? createHttpStream(url, { headers })
  : createWebSocketStream(url.replace(/^http/, "ws"), { protocols: ["acp.v1", `bearer.${key}`], WebSocket });

let seen = { chunks: 0, user: 0, options: [], text: "" };
const print = (step, value) => {
  process.stdout.write(`${JSON.stringify({ step, ...value, seen })}\n`);
  seen = { chunks: 0, user: 0, options: [], text: "" };
};

const app = acp.client({ name: "acp.mjs" })
  .onRequest(client.session.requestPermission, ({ params }) => {
    seen.options = params.options.map((option) => option.optionId);
    return { outcome: { outcome: "selected", optionId: "allow" } };
  })
  .onNotification(client.session.update, ({ params: { update } }) => {
    if (update.sessionUpdate === "agent_message_chunk") {
      seen.chunks += 1;
      seen.text = update.content.text;
    }
    if (update.sessionUpdate === "user_message_chunk") seen.user += 1;
  });

const text = (prompt) => [{ type: "text", text: prompt }];
const run = (steps) => app.connectWith(connect(), async (ctx) => {
  const { agentCapabilities } = await ctx.request(agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
  print("initialize", { loadSession: agentCapabilities.loadSession });
  return steps(ctx);
});
const failure = (call) => call.then(() => null, ({ code, message }) => ({ code, message }));

let sessionId;
await run(async (ctx) => {
  ({ sessionId } = await ctx.request(agent.session.new, { cwd: "", mcpServers: [] }));
  print("new", { sessionId });
  print("turn", await ctx.request(agent.session.prompt, { sessionId, prompt: text("stream n=20; permission") }));
  const hanging = ctx.request(agent.session.prompt, { sessionId, prompt: text("hang") });
  await ctx.notify(agent.session.cancel, { sessionId });
  print("cancel", await hanging);
  const outside = { cwd: "/etc", mcpServers: [] };
  print("outside", { error: await failure(ctx.request(agent.session.new, outside)) });
  const unknown = { sessionId: "00000000-0000-7000-8000-000000000000", cwd: "/", mcpServers: [] };
  print("unknown", { error: await failure(ctx.request(agent.session.load, unknown)) });
});
await run(async (ctx) => {
  await ctx.request(agent.session.load, { sessionId, cwd: "/", mcpServers: [] });
  print("load", {});
  print("again", await ctx.request(agent.session.prompt, { sessionId, prompt: text("stream n=3; echo é☃😀") }));
});
await run(async (ctx) => {
  await ctx.request(agent.session.resume, { sessionId, cwd: "/", mcpServers: [] });
  print("resume", {});
  print("resumed", await ctx.request(agent.session.prompt, { sessionId, prompt: text("echo last") }));
});
process.exit(0);
