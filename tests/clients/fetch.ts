// The main path with the types of openapi-typescript and the client openapi-fetch. openapi-fetch has no reader of
// Server-Sent Events: it returns the body as a stream, and eventsource-parser splits it into events.
import assert from "node:assert/strict";
import { EventSourceParserStream } from "eventsource-parser/stream";
import createClient from "openapi-fetch";
import type { components, paths } from "./generated/fetch.js";

type SessionEvent = components["schemas"]["SessionEvent"];

const { GATEWAY_URL: baseUrl, GATEWAY_KEY: key } = process.env;
assert(baseUrl !== undefined && key !== undefined);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

async function* events(body: ReadableStream<Uint8Array> | null | undefined): AsyncGenerator<SessionEvent> {
  assert(body);
  const messages = body
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)
    .pipeThrough(new EventSourceParserStream());
  for await (const message of messages) yield JSON.parse(message.data) as SessionEvent;
}

/** The text of an update, if it is a part of a message. */
function said(event: SessionEvent): string {
  if (event.type !== "session.update" || event.update.sessionUpdate !== "agent_message_chunk") return "";
  const block = event.update["content"] as components["schemas"]["ContentBlock"];
  return block.type === "text" ? block.text : "";
}

const created = await client.POST("/v1/sessions", { body: { agent: "demo", title: "openapi-fetch" } });
assert(created.data, JSON.stringify(created.error));
const session = created.data.sessionId;
const path = { session };

// A turn that asks for a permission, followed by its own stream.
const begun = await client.POST("/v1/sessions/{session}/prompts", {
  params: { path },
  body: { prompt: [{ type: "text", text: "/permission" }] },
});
assert.equal(begun.response.status, 202);
assert(begun.data);
const turn = await client.GET("/v1/sessions/{session}/prompts/{prompt}/events/stream", {
  params: { path: { session, prompt: begun.data.promptId } },
  parseAs: "stream",
});
let answered = 0;
let ended: SessionEvent["type"] | undefined;
for await (const event of events(turn.data)) {
  switch (event.type) {
    case "request.created": {
      const option = event.params.options?.find((option) => option.kind === "allow_once");
      assert(option, JSON.stringify(event.params));
      const answer = await client.POST("/v1/sessions/{session}/permissions/{request}", {
        params: { path: { session, request: event.requestId } },
        body: { optionId: option.optionId },
      });
      assert.equal(answer.response.status, 204);
      answered += 1;
      break;
    }
    case "prompt.completed":
      assert.equal(event.stopReason, "end_turn");
      ended = event.type;
      break;
    case "prompt.failed":
      assert.fail(event.problem.detail);
  }
}
assert.equal(answered, 1);
assert.equal(ended, "prompt.completed");

// A turn and its stream in one request.
const streamed = await client.POST("/v1/sessions/{session}/prompts/stream", {
  params: { path },
  body: { prompt: "Hello" },
  parseAs: "stream",
});
let text = "";
let last: SessionEvent | undefined;
for await (const event of events(streamed.data)) {
  text += said(event);
  last = event.type === "prompt.completed" ? event : last;
}
assert(text.length > 0);
assert.equal(last?.type, "prompt.completed");

const transcript = await client.GET("/v1/sessions/{session}/transcript", { params: { path } });
assert(transcript.data, JSON.stringify(transcript.error));
const [second, first] = transcript.data.turns;
assert(first && second);
assert.equal(first.status, "completed");
const request = first.items.find((item) => item.type === "request");
assert(request?.type === "request");
assert.equal(request.resolution, "answered");
const message = second.items.find((item) => item.type === "message" && item.role === "agent");
assert(message?.type === "message");
const block = message.content[0];
assert(block?.type === "text" && text.startsWith(block.text));

const missing = await client.GET("/v1/sessions/{session}", {
  params: { path: { session: "01938c5e-7a3b-7c4d-8e5f-0123456789ab" } },
});
assert.equal(missing.error?.code, "not_found");
await client.PATCH("/v1/sessions/{session}", { params: { path }, body: { title: null } });
await client.DELETE("/v1/sessions/{session}", { params: { path } });
console.log("openapi-fetch: a turn, its stream, a permission and the transcript");
