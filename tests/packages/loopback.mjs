// A registry of agents, a registry of npm and a model of Anthropic's API, on loopback. Everything except the model is files:
//
//   node loopback.mjs FOLDER PORT

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";

const [folder, port] = process.argv.slice(2);

/** The last text of the user, without the reminders that the agent adds. */
function lastText(messages) {
  const ofUser = messages.filter((message) => message.role === "user").flatMap(({ content }) => content);
  const texts = ofUser.map((block) => block.text ?? block).filter((text) => typeof text === "string");
  return texts.filter((text) => !text.trimStart().startsWith("<system-reminder>")).at(-1);
}

/** The answer of the model, which repeats the text of the user. */
function answer({ model, messages }) {
  const usage = { input_tokens: 10, output_tokens: 1 };
  const message = { id: "msg_1", type: "message", role: "assistant", model, content: [], stop_reason: null, stop_sequence: null, usage };
  const events = [
    { type: "message_start", message },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: `The model read: ${lastText(messages)}` } },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: "end_turn", stop_sequence: null }, usage },
    { type: "message_stop" },
  ];
  return events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");
}

const server = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://127.0.0.1");
  try {
    if (request.method === "POST" && pathname === "/v1/messages") {
      const chunks = await request.toArray();
      const text = answer(JSON.parse(Buffer.concat(chunks).toString()));
      response.setHeader("Content-Type", "text/event-stream");
      response.end(text);
    } else {
      // npm escapes the slash of a scope.
      const file = path.normalize(decodeURIComponent(pathname));
      response.end(readFileSync(path.join(folder, file)));
    }
  } catch {
    response.statusCode = 404;
    response.end();
  }
});
server.listen(Number(port), "127.0.0.1");
