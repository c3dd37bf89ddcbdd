// The stock clients of responses: the SDK of OpenAI, and the AI SDK's provider. Prints what they deliver, as JSON.
//
//   node openai_responses.mjs URL KEY MODEL SCENARIO PROMPT

import OpenAI from "openai";

const [url, key, model, scenario, ...rest] = process.argv.slice(2);
const prompt = rest.join(" ");
const client = new OpenAI({ baseURL: url, apiKey: key });

const approval = (response) => response.output.find((item) => item.type === "mcp_approval_request");
const answer = (response, approve) => ({
  model,
  previous_response_id: response.id,
  input: [{ type: "mcp_approval_response", approval_request_id: approval(response).id, approve }],
});
const shown = (response) => ({
  id: response.id,
  status: response.status,
  text: response.output_text,
  items: response.output.map(({ type, status }) => ({ type, status })),
});
const answered = async (approve) => {
  const first = await client.responses.create({ model, input: prompt });
  const second = await client.responses.create(answer(first, approve));
  return { first: shown(first), second: shown(second) };
};

/** The numbers and types of frames. */
const collect = async (stream, limit = Infinity) => {
  const frames = [];
  for await (const { type, sequence_number } of stream) {
    frames.push({ type, sequence_number });
    if (frames.length >= limit) break;
  }
  return frames;
};

const scenarios = {
  whole: async () => shown(await client.responses.create({ model, input: prompt })),
  async helper() {
    const stream = client.responses.stream({ model, input: prompt });
    const types = new Set();
    stream.on("event", ({ type }) => types.add(type));
    return { ...shown(await stream.finalResponse()), types: [...types] };
  },
  approve: () => answered(true),
  deny: () => answered(false),
  async next() {
    const first = await client.responses.create({ model, input: "/about" });
    const second = await client.responses.create({ model, input: prompt, previous_response_id: first.id });
    return { first: first.id, second: second.id, text: second.output_text };
  },
  // The connection is lost after some frames, and the client reads on from there.
  async resume() {
    const stream = await client.responses.create({ model, input: prompt, stream: true, background: true });
    let id;
    const first = [];
    for await (const event of stream) {
      id ??= event.response?.id;
      first.push(event.sequence_number);
      if (first.length === 12) break;
    }
    const starting_after = first.at(-1);
    const rest = await collect(await client.responses.retrieve(id, { stream: true, starting_after }));
    const again = await collect(await client.responses.retrieve(id, { stream: true, starting_after }));
    return { first, rest: rest.map((frame) => frame.sequence_number), last: rest.at(-1).type, same: JSON.stringify(rest) === JSON.stringify(again) };
  },
  async cancel() {
    const begun = await client.responses.create({ model, input: prompt, background: true });
    const cancelled = await client.responses.cancel(begun.id);
    return { begun: begun.status, cancelled: cancelled.status, read: (await client.responses.retrieve(begun.id)).status };
  },
  async conversation() {
    const { id } = await client.conversations.create({ metadata: { model } });
    const first = await client.responses.create({ model, input: prompt, conversation: id });
    const input = await client.responses.inputItems.list(first.id);
    const items = [];
    for await (const item of client.conversations.items.list(id, { order: "asc", limit: 2 })) items.push(item.type);
    const { deleted } = await client.conversations.delete(id);
    return { conversation: first.conversation.id === id, input: input.data.map(({ content }) => content[0].text), items, deleted };
  },
  async unknown() {
    try {
      await client.responses.create({ model, input: prompt, previous_response_id: "resp_none" });
    } catch (error) {
      return { name: error.constructor.name, status: error.status };
    }
    return {};
  },
  async provider() {
    const { createOpenAI } = await import("@ai-sdk/openai");
    const { streamText } = await import("ai-7");
    const provider = createOpenAI({ baseURL: url, apiKey: key });
    const result = streamText({ model: provider.responses(model), prompt });
    const seen = { text: "", reasoning: "", errors: [] };
    for await (const part of result.fullStream) {
      if (part.type === "text-delta") seen.text += part.text ?? part.delta;
      if (part.type === "reasoning-delta") seen.reasoning += part.text ?? part.delta;
      if (part.type === "error") seen.errors.push(String(part.error));
    }
    return { ...seen, finish_reason: await result.finishReason };
  },
};

console.log(JSON.stringify(await scenarios[scenario]()));
