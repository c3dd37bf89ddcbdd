// `useChat` without React: the stock chat class and transport of the AI SDK. Prints what a user would see, as JSON.
//
//   node ai_sdk.mjs VERSION URL KEY SCENARIO

import { setTimeout as sleep } from "node:timers/promises";

const [version, url, key, scenario] = process.argv.slice(2);
const ai = await import(`ai-${version}`);

// The state of a chat, as a framework would keep it.
class State {
  messages = [];
  status = "ready";
  error = undefined;
  pushMessage = (message) => (this.messages = [...this.messages, message]);
  popMessage = () => (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => {
    this.messages = this.messages.with?.(index, message) ?? this.messages.map((old, at) => (at === index ? message : old));
  };
  snapshot = (value) => structuredClone(value);
}

class Chat extends ai.AbstractChat {
  constructor(options) {
    super({ ...options, state: new State() });
  }
}

// Each run has conversations of its own.
const run = process.pid;
let posts = 0;
let cutAfter = Infinity;
/** Counts requests, and cuts a response after some bytes. */
const countingFetch = async (input, init) => {
  posts += init?.method === "POST" ? 1 : 0;
  const response = await fetch(input, init);
  if (cutAfter === Infinity || !response.body) return response;
  let left = cutAfter;
  cutAfter = Infinity;
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) return controller.close();
      left -= value.length;
      controller.enqueue(value);
      if (left <= 0) {
        await reader.cancel();
        controller.error(new TypeError("network error"));
      }
    },
  });
  return new Response(body, { status: response.status, headers: response.headers });
};

const errors = [];
const open = (name, query = "", id = `${name}-${run}`) =>
  new Chat({
    id,
    transport: new ai.DefaultChatTransport({
      api: `${url}${query}`,
      headers: { authorization: `Bearer ${key}` },
      fetch: countingFetch,
      prepareReconnectToStreamRequest: () => ({ api: `${url}/${encodeURIComponent(id)}/stream${query}` }),
    }),
    sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithApprovalResponses,
    onError: (error) => errors.push(error.message),
  });

const until = async (what, holds) => {
  for (let n = 0; n < 600; n += 1) {
    const value = holds();
    if (value) return value;
    await sleep(50);
  }
  throw new Error(`no ${what}`);
};

const parts = (chat) => chat.messages.filter((message) => message.role === "assistant").flatMap((message) => message.parts);
const text = (chat) => parts(chat).filter((part) => part.type === "text").map((part) => part.text).join("");
const reasoning = (chat) => parts(chat).filter((part) => part.type === "reasoning").map((part) => part.text).join("");
const tools = (chat) => parts(chat).filter((part) => part.type === "dynamic-tool");
const asked = (chat) => tools(chat).find((part) => part.state === "approval-requested");

const shown = (chat) => ({
  roles: chat.messages.map((message) => message.role),
  text: text(chat),
  reasoning: reasoning(chat),
  tools: tools(chat).map(({ toolName, toolCallId, state, errorText }) => ({ toolName, toolCallId, state, errorText })),
  data: [...new Set(parts(chat).map((part) => part.type).filter((type) => type.startsWith("data-")))],
  status: chat.status,
  posts,
  errors,
});

const scenarios = {
  async text() {
    const chat = open("text");
    await chat.sendMessage({ text: "/about" });
    await chat.sendMessage({ text: "second" });
    return shown(chat);
  },
  async turn(prompt) {
    const chat = open("turn");
    await chat.sendMessage({ text: prompt });
    return shown(chat);
  },
  async approve(prompt) {
    const chat = open("approve");
    await chat.sendMessage({ text: prompt });
    const part = await until("approval", () => asked(chat));
    await chat.addToolApprovalResponse({ id: part.approval.id, approved: true });
    await until("end", () => chat.status === "ready" && !asked(chat) && posts === 2);
    await sleep(1000);
    return shown(chat);
  },
  async deny(prompt) {
    const chat = open("deny");
    await chat.sendMessage({ text: prompt });
    const part = await until("approval", () => asked(chat));
    await chat.addToolApprovalResponse({ id: part.approval.id, approved: false });
    await until("end", () => chat.status === "ready" && !asked(chat) && posts === 2);
    await sleep(1000);
    return shown(chat);
  },
  // The connection is lost while the turn runs, and again after its end.
  async resume(prompt) {
    const chat = open("resume");
    cutAfter = 2000;
    await chat.sendMessage({ text: prompt });
    const lost = chat.status;
    await chat.resumeStream();
    const during = shown(chat);
    await chat.resumeStream();
    return { lost, during, after: shown(chat) };
  },
  // A page that has nothing yet.
  async "new-page"(prompt) {
    const first = open("page");
    const sent = first.sendMessage({ text: prompt });
    await until("text", () => parts(first).length > 0);
    const second = open("page");
    await second.resumeStream();
    await sent;
    return shown(second);
  },
  // Another tab finds the open approval.
  async "other-tab"(prompt) {
    const first = open("tab");
    await first.sendMessage({ text: prompt });
    await until("approval", () => asked(first));
    const second = open("tab");
    await second.resumeStream();
    const part = await until("approval in the second tab", () => asked(second));
    await second.addToolApprovalResponse({ id: part.approval.id, approved: true });
    await until("end", () => second.status === "ready" && !asked(second) && posts === 2);
    return shown(second);
  },
  async stop(prompt) {
    const chat = open("stop");
    const sent = chat.sendMessage({ text: prompt });
    await until("text", () => parts(chat).length > 0);
    await fetch(`${url}/stop-${run}/stop`, { method: "POST", headers: { authorization: `Bearer ${key}` } });
    await sent;
    return shown(chat);
  },
  async regenerate() {
    const chat = open("regenerate");
    await chat.sendMessage({ text: "one" });
    const first = chat.lastMessage.id;
    await chat.regenerate();
    return { ...shown(chat), same: chat.lastMessage.id === first };
  },
  async edit() {
    const chat = open("edit");
    await chat.sendMessage({ text: "one" });
    await chat.sendMessage({ text: "two", messageId: chat.messages[0].id });
    return shown(chat);
  },
};

const [name, ...rest] = scenario.split(":");
console.log(JSON.stringify(await scenarios[name](rest.join(":"))));
process.exit(0);
