// The stock client of AG-UI. Prints what an application would see, as JSON.
//
//   node ag_ui.mjs PACKAGE URL KEY SCENARIO PROMPT

const [name, url, key, scenario, ...rest] = process.argv.slice(2);
const prompt = rest.join(" ");
const { HttpAgent } = await import(name);

const run = process.pid;
const open = (thread, initialMessages = []) =>
  new HttpAgent({ url, threadId: `${thread}-${run}`, headers: { authorization: `Bearer ${key}` }, initialMessages });

const user = (content, id = "u1") => ({ id, role: "user", content });

/** Runs the agent and collects what the application is told. */
const follow = async (agent, parameters) => {
  const seen = { events: [], errors: [], finished: 0, interrupts: [] };
  const result = await agent.runAgent(parameters, {
    onEvent: ({ event }) => void seen.events.push(event.type),
    onRunErrorEvent: ({ event }) => void seen.errors.push(event.message),
    onRunFinishedEvent: ({ event }) => {
      seen.finished += 1;
      seen.interrupts = event.outcome?.interrupts ?? [];
    },
  });
  return { ...seen, result };
};

const shown = (agent, seen) => ({
  roles: agent.messages.map((message) => message.role),
  text: agent.messages.filter((message) => message.role === "assistant").map((message) => message.content ?? "").join(""),
  tools: agent.messages.filter((message) => message.role === "tool").map((message) => message.content),
  events: [...new Set(seen.events)],
  errors: seen.errors,
  finished: seen.finished,
  interrupts: seen.interrupts.map(({ id, reason, toolCallId }) => ({ id, reason, toolCallId })),
  state: agent.state,
});

const answered = async (payload) => {
  const agent = open("answer");
  agent.addMessage(user(prompt));
  const first = await follow(agent, { runId: "r-1" });
  const resume = first.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload }));
  const second = await follow(agent, { runId: "r-2", resume });
  return { first: shown({ messages: [], state: {} }, first), second: shown(agent, second) };
};

const scenarios = {
  async turn() {
    const agent = open("turn");
    agent.addMessage(user(prompt));
    return shown(agent, await follow(agent, { runId: "r-1" }));
  },
  approve: () => answered({ approved: true }),
  deny: () => answered({ approved: false }),
  // The same run is sent twice.
  async twice() {
    const [first, second] = [open("twice", [user(prompt)]), open("twice", [user(prompt)])];
    const one = shown(first, await follow(first, { runId: "r-1" }));
    const two = shown(second, await follow(second, { runId: "r-1" }));
    return { one, two };
  },
  // A new message while an interrupt waits.
  async conflict() {
    const agent = open("conflict");
    agent.addMessage(user(prompt));
    await follow(agent, { runId: "r-1" });
    const other = open("conflict", [user(prompt), { id: "u2", role: "user", content: "and this" }]);
    try {
      await follow(other, { runId: "r-2" });
    } catch (error) {
      return { status: error.status, code: error.payload?.error?.code };
    }
    return {};
  },
};

console.log(JSON.stringify(await scenarios[scenario]()));
process.exit(0);
