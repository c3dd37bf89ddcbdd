// The main path with the client of @hey-api/openapi-ts, which reads Server-Sent Events itself.
import assert from "node:assert/strict";
import { createClient } from "./generated/hey/client/index.js";
import {
  answerPermission,
  createPrompt,
  createPromptStream,
  createSession,
  deleteSession,
  getSession,
  getTranscript,
  promptEventsStream,
} from "./generated/hey/index.js";
import type { ContentBlock, SessionEvent } from "./generated/hey/index.js";

const { GATEWAY_URL: baseUrl, GATEWAY_KEY: key } = process.env;
assert(baseUrl !== undefined && key !== undefined);
const client = createClient({ baseUrl, auth: (scheme) => (scheme.type === "http" ? key : undefined) });

/** The text of an update, if it is a part of a message. */
function said(event: SessionEvent): string {
  if (event.type !== "session.update" || event.update.sessionUpdate !== "agent_message_chunk") return "";
  const block = event.update["content"] as ContentBlock;
  return block.type === "text" ? block.text : "";
}

const created = await createSession({ client, body: { agent: "demo", title: "hey-api" } });
assert(created.data, JSON.stringify(created.error));
const session = created.data.sessionId;
const path = { session };

const begun = await createPrompt({ client, path, body: { prompt: "/permission" } });
assert(begun.data, JSON.stringify(begun.error));
const turn = await promptEventsStream({ client, path: { session, prompt: begun.data.promptId } });
let answered = 0;
let completed = false;
for await (const event of turn.stream) {
  if (!event) continue;
  if (event.type === "request.created") {
    const option = event.params.options?.find((option) => option.kind === "allow_once");
    assert(option, JSON.stringify(event.params));
    const answer = await answerPermission({
      client,
      path: { session, request: event.requestId },
      body: { optionId: option.optionId },
    });
    assert.equal(answer.response?.status, 204);
    answered += 1;
  } else if (event.type === "prompt.completed") {
    completed = event.stopReason === "end_turn";
  }
}
assert.equal(answered, 1);
assert(completed);

const streamed = await createPromptStream({ client, path, body: { prompt: "Hello" } });
let text = "";
completed = false;
for await (const event of streamed.stream) {
  text += said(event);
  completed ||= event.type === "prompt.completed";
}
assert(text.length > 0 && completed);

const transcript = await getTranscript({ client, path });
assert(transcript.data, JSON.stringify(transcript.error));
const [second, first] = transcript.data.turns;
assert(first && second);
const request = first.items.find((item) => item.type === "request");
assert(request?.type === "request");
assert.equal(request.resolution, "answered");
const message = second.items.find((item) => item.type === "message" && item.role === "agent");
assert(message?.type === "message");
const block = message.content[0];
assert(block?.type === "text" && text.startsWith(block.text));

const missing = await getSession({ client, path: { session: "01938c5e-7a3b-7c4d-8e5f-0123456789ab" } });
assert.equal(missing.error?.code, "not_found");
await deleteSession({ client, path });
console.log("@hey-api/openapi-ts: a turn, its stream, a permission and the transcript");
