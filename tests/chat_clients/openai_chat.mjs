// The stock clients of chat completions: the SDK of OpenAI, and the AI SDK's provider. Prints what they deliver, as JSON.
//
//   node openai_chat.mjs URL KEY SCENARIO MODEL

import OpenAI, { APIError } from "openai";

const [url, key, scenario, model, ...rest] = process.argv.slice(2);
const prompt = rest.join(" ");
const client = new OpenAI({ baseURL: url, apiKey: key });
const user = (content) => ({ role: "user", content });

const scenarios = {
  async models() {
    const ids = [];
    for await (const one of client.models.list()) ids.push(one.id);
    return { ids, one: (await client.models.retrieve(ids[0])).id };
  },
  async whole() {
    const { data, response } = await client.chat.completions
      .create({ model, messages: [user(prompt)] })
      .withResponse();
    const [{ message, finish_reason }] = data.choices;
    return { text: message.content, reasoning: message.reasoning_content, finish_reason, usage: data.usage, session: response.headers.get("x-acp-session-id") };
  },
  async streamed() {
    const stream = await client.chat.completions.create({
      model,
      messages: [user(prompt)],
      stream: true,
      stream_options: { include_usage: true },
    });
    const shown = { text: "", reasoning: "", ids: new Set(), usage: null, finish_reason: null, roles: [] };
    for await (const chunk of stream) {
      shown.ids.add(chunk.id);
      shown.usage ??= chunk.usage ?? null;
      const [choice] = chunk.choices;
      if (!choice) continue;
      if (choice.delta.role) shown.roles.push(choice.delta.role);
      shown.text += choice.delta.content ?? "";
      shown.reasoning += choice.delta.reasoning_content ?? "";
      shown.finish_reason ??= choice.finish_reason;
    }
    return { ...shown, ids: shown.ids.size };
  },
  async helper() {
    const stream = client.chat.completions.stream({ model, messages: [user(prompt)] });
    const completion = await stream.finalChatCompletion();
    return { text: completion.choices[0].message.content };
  },
  // A second message with the whole history, and without any id.
  async history() {
    const first = await client.chat.completions.create({ model, messages: [user("/about")] });
    const messages = [user("/about"), first.choices[0].message, user(prompt)];
    const { data, response } = await client.chat.completions.create({ model, messages }).withResponse();
    return { first: first.id, second: data.id, history: response.headers.get("x-acp-history") };
  },
  async error() {
    try {
      await client.chat.completions.create({ model, messages: [user(prompt)] });
    } catch (error) {
      return { api: error instanceof APIError, name: error.constructor.name, status: error.status, code: error.code, message: error.message };
    }
    return { api: false };
  },
  // The AI SDK's provider for servers that are compatible with OpenAI.
  async provider() {
    const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
    const { streamText } = await import("ai-7");
    const provider = createOpenAICompatible({ name: "gateway", baseURL: url, apiKey: key, includeUsage: true });
    const result = streamText({ model: provider(model), prompt });
    const shown = { text: "", reasoning: "" };
    for await (const part of result.fullStream) {
      if (part.type === "text-delta") shown.text += part.text ?? part.delta;
      if (part.type === "reasoning-delta") shown.reasoning += part.text ?? part.delta;
    }
    return { ...shown, finish_reason: await result.finishReason };
  },
};

console.log(JSON.stringify(await scenarios[scenario]()));
