// Drives an agent through `acp-gateway translate`, and prints updates and results as JSON: node translate.mjs COMMAND...
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [command, ...args] = process.argv.slice(2);
const print = (line) => console.log(JSON.stringify(line));
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
let onUpdate = () => {};

await acp
  .client({ name: "example" })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    print({ update: params.update });
    onUpdate(params.update);
  })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    print({ asked: params.toolCall });
    const { optionId } = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId } };
  })
  .connectWith(stream, async (agent) => {
    await agent.request(acp.methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: {},
    });
    const { sessionId } = await agent.request(acp.methods.agent.session.new, {
      cwd: process.cwd(),
      mcpServers: [],
    });
    const prompt = async (text) => {
      const turn = agent.request(acp.methods.agent.session.prompt, {
        sessionId,
        prompt: [{ type: "text", text }],
      });
      print({ stopReason: (await turn).stopReason });
    };
    await prompt('call Bash {"command":"touch made.txt","description":"Run a command"}');
    onUpdate = (update) => {
      if (update.sessionUpdate === "agent_message_chunk") {
        agent.notify(acp.methods.agent.session.cancel, { sessionId });
        onUpdate = () => {};
      }
    };
    await prompt("slowly");
    await prompt("banana");
  });
child.stdin.end();
