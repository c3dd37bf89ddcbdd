// Sends prompts through `acp-gateway attach`, and prints updates and results as JSON: node attach.mjs URL AGENT PROMPT...
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [url, agentName, ...prompts] = process.argv.slice(2);
const print = (line) => console.log(JSON.stringify(line));

// The bridge reads the key from the variable ACP_GATEWAY_KEY.
const bridge = spawn("acp-gateway", ["attach", "--url", url, "--agent", agentName], {
  stdio: ["pipe", "pipe", "inherit"],
});
const stream = acp.ndJsonStream(Writable.toWeb(bridge.stdin), Readable.toWeb(bridge.stdout));

await acp
  .client({ name: "example" })
  .onNotification(acp.methods.client.session.update, ({ params }) => print({ update: params.update }))
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => ({
    outcome: { outcome: "selected", optionId: params.options[0].optionId },
  }))
  .connectWith(stream, async (agent) => {
    await agent.request(acp.methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: {},
    });
    const { sessionId } = await agent.request(acp.methods.agent.session.new, {
      cwd: process.cwd(),
      mcpServers: [],
    });
    print({ sessionId });
    for (const text of prompts) {
      const turn = agent.request(acp.methods.agent.session.prompt, {
        sessionId,
        prompt: [{ type: "text", text }],
      });
      print(await turn.catch((error) => ({ error: error.message })));
    }
  });
bridge.stdin.end();
