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
import type {
  ContentBlock,
  CreateTask,
  KnownContentBlock,
  KnownSessionEvent,
  KnownTurnItem,
  ProblemCode,
  PromptStatus,
  SessionEvent,
  Turn,
  TurnItem,
} from "./generated/hey/index.js";

const { GATEWAY_URL: baseUrl, GATEWAY_KEY: key } = process.env;
assert(baseUrl !== undefined && key !== undefined);
const client = createClient({ baseUrl, auth: (scheme) => (scheme.type === "http" ? key : undefined) });

/** The text of an update, if it is a part of a message. An event of a later type is none. */
function said(later: SessionEvent): string {
  const event = later as KnownSessionEvent;
  if (event.type !== "session.update" || event.update.sessionUpdate !== "agent_message_chunk") return "";
  const block = event.update["content"] as KnownContentBlock;
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
for await (const received of turn.stream) {
  if (!received) continue;
  const event = received as KnownSessionEvent;
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
const itemsOf = (turn: Turn) => turn.items as KnownTurnItem[];
const request = itemsOf(first).find((item) => item.type === "request");
assert(request?.type === "request");
assert.equal(request.resolution, "answered");
const message = itemsOf(second).find((item) => item.type === "message" && item.role === "agent");
assert(message?.type === "message");
const block = message.content[0] as KnownContentBlock | undefined;
assert(block?.type === "text" && text.startsWith(block.text));

const missing = await getSession({ client, path: { session: "01938c5e-7a3b-7c4d-8e5f-0123456789ab" } });
assert.equal(missing.error?.code, "not_found");
await deleteSession({ client, path });

// A gateway of tomorrow has more values of enums and more members of unions. These lines do not compile if the document is closed.
const laterCode: ProblemCode = "later_code";
const laterStatus: PromptStatus = "later_status";
const laterEvent: SessionEvent = { type: "later.event", more: 1 };
const laterItem: TurnItem = { type: "later_item" };
const laterBlock: ContentBlock = { type: "later_block" };
// @ts-expect-error A request has only the values of today.
const laterPriority: CreateTask["priority"] = "later_priority";
const laterClient = createClient({
  baseUrl,
  fetch: async () => Response.json({ ...missing.error, code: laterCode }, { status: 404 }),
});
const later = await getSession({ client: laterClient, path });
assert.equal(later.error?.code, laterCode);
assert(laterStatus && laterEvent && laterItem && laterBlock && laterPriority);
console.log("@hey-api/openapi-ts: a turn, its stream, a permission and the transcript");
