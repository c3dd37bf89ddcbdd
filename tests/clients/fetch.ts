// The main path with the types of openapi-typescript and the client openapi-fetch. openapi-fetch has no reader of
// Server-Sent Events: it returns the body as a stream, and eventsource-parser splits it into events.
import assert from "node:assert/strict";
import { EventSourceParserStream } from "eventsource-parser/stream";
import createClient from "openapi-fetch";
import type { components, paths } from "./generated/fetch.js";

type Schemas = components["schemas"];
type SessionEvent = Schemas["SessionEvent"];
// A later gateway sends further types of events. A program that acts on the types of today skips the others: a `switch` over the
// known ones narrows the type.
type KnownEvent = Schemas["KnownSessionEvent"];

const { GATEWAY_URL: baseUrl, GATEWAY_KEY: key } = process.env;
assert(baseUrl !== undefined && key !== undefined);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

async function* events(body: ReadableStream<Uint8Array> | null | undefined): AsyncGenerator<KnownEvent> {
  assert(body);
  const messages = body
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)
    .pipeThrough(new EventSourceParserStream());
  for await (const message of messages) yield JSON.parse(message.data) as KnownEvent;
}

/** The text of an update, if it is a part of a message. */
function said(event: KnownEvent): string {
  if (event.type !== "session.update" || event.update.sessionUpdate !== "agent_message_chunk") return "";
  const block = event.update["content"] as Schemas["KnownContentBlock"];
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
let ended: KnownEvent["type"] | undefined;
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
let last: KnownEvent | undefined;
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
const itemsOf = (turn: Schemas["Turn"]) => turn.items as Schemas["KnownTurnItem"][];
const request = itemsOf(first).find((item) => item.type === "request");
assert(request?.type === "request");
assert.equal(request.resolution, "answered");
const message = itemsOf(second).find((item) => item.type === "message" && item.role === "agent");
assert(message?.type === "message");
const block = message.content[0] as Schemas["KnownContentBlock"];
assert(block?.type === "text" && text.startsWith(block.text));

const missing = await client.GET("/v1/sessions/{session}", {
  params: { path: { session: "01938c5e-7a3b-7c4d-8e5f-0123456789ab" } },
});
assert.equal(missing.error?.code, "not_found");
await client.PATCH("/v1/sessions/{session}", { params: { path }, body: { title: null } });
await client.DELETE("/v1/sessions/{session}", { params: { path } });

// A gateway of tomorrow has more values of enums and more members of unions. These lines do not compile if the document is closed.
const laterCode: Schemas["ProblemCode"] = "later_code";
const laterStatus: Schemas["PromptStatus"] = "later_status";
const laterEvent: SessionEvent = { type: "later.event", more: 1 };
const laterItem: Schemas["TurnItem"] = { type: "later_item" };
const laterBlock: Schemas["ContentBlock"] = { type: "later_block" };
// @ts-expect-error A request has only the values of today.
const laterPriority: Schemas["CreateTask"]["priority"] = "later_priority";
const laterClient = createClient<paths>({
  baseUrl,
  fetch: async () => Response.json({ ...missing.error, code: laterCode }, { status: 404 }),
});
const later = await laterClient.GET("/v1/sessions/{session}", { params: { path } });
assert.equal(later.error?.code, laterCode);
assert(laterStatus && laterEvent && laterItem && laterBlock && laterPriority);
console.log("openapi-fetch: a turn, its stream, a permission and the transcript");
