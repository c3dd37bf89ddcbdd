// An agent behind the server of the official TypeScript SDK, over HTTP and WebSocket. Prints its port, then a line for each
// connection that ends.
//
//   node acp_server.mjs TOKEN
import { createServer } from "node:http";
import * as acp from "acp-sdk-2";
import { createNodeHttpHandler, createNodeWebSocketUpgradeHandler } from "acp-sdk-2/experimental/node";
import { AcpServer } from "acp-sdk-2/experimental/server";
import { WebSocketServer } from "ws";

const [token] = process.argv.slice(2);
const { agent, client } = acp.methods;
const sessions = new Map();

const app = acp.agent({ name: "acp_server.mjs" })
  .onConnect((connection) => { connection.closed.then(() => console.log("closed")); })
  .onRequest(agent.initialize, () => ({ protocolVersion: 1, agentCapabilities: { loadSession: true } }))
  .onRequest(agent.session.new, () => {
    const sessionId = `sdk-${sessions.size}`;
    sessions.set(sessionId, []);
    return { sessionId };
  })
  .onRequest(agent.session.load, async ({ params, client: peer }) => {
    for (const text of sessions.get(params.sessionId)) await say(peer, params.sessionId, text);
    return {};
  })
  .onNotification(agent.session.cancel, ({ params }) => { sessions.get(params.sessionId).cancelled = true; })
  .onRequest(agent.session.prompt, async ({ params: { sessionId, prompt }, client: peer }) => {
    const texts = sessions.get(sessionId);
    texts.cancelled = false;
    if (prompt[0].text === "permission") {
      const { outcome } = await peer.request(client.session.requestPermission, {
        sessionId,
        toolCall: { toolCallId: "t", title: "Write" },
        options: [
          { optionId: "allow", name: "Allow", kind: "allow_once" },
          { optionId: "reject", name: "Reject", kind: "reject_once" },
        ],
      });
      await say(peer, sessionId, `permission: ${outcome.optionId}`);
    } else if (prompt[0].text === "slow") {
      for (let number = 0; number < 200 && !texts.cancelled; number += 1) {
        await say(peer, sessionId, `chunk ${number} `);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    } else {
      texts.push(prompt[0].text);
      await say(peer, sessionId, prompt[0].text);
    }
    return { stopReason: texts.cancelled ? "cancelled" : "end_turn" };
  });

const say = (peer, sessionId, text) => peer.notify(client.session.update, {
  sessionId,
  update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
});

const server = new AcpServer({ agent: app });
const handle = createNodeHttpHandler(server);
const upgrade = createNodeWebSocketUpgradeHandler(server, new WebSocketServer({ noServer: true }));
const isAllowed = (request) => request.headers.authorization === `Bearer ${token}`;
const http = createServer((request, response) => {
  if (isAllowed(request)) handle(request, response);
  else response.writeHead(401).end();
});
http.on("upgrade", (request, socket, head) => {
  if (isAllowed(request)) upgrade(request, socket, head);
  else socket.end("HTTP/1.1 401 Unauthorized\r\n\r\n");
});
http.listen(0, "127.0.0.1", () => console.log(http.address().port));
