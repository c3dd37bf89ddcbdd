import { describe, expect, test } from "vitest";
import { blocksText, EMPTY, fold, foldAll, type LogEvent, openRequests, runningTurn } from "@acp-gateway/client";
import { item, played, Script, startedScript, turn } from "./events";

const ASK = {
  requestId: "r1",
  method: "session/request_permission",
  params: {
    sessionId: "s",
    toolCall: { toolCallId: "t1", title: "Write notes.md" },
    options: [
      { optionId: "yes", name: "Allow", kind: "allow_once" },
      { optionId: "no", name: "Reject", kind: "reject_once" },
    ],
  },
};

describe("privileged modes", () => {
  const denied = [{ modeId: "bypassPermissions" }, { configId: "sandbox", value: "off" }];

  test("are those of the last attach", () => {
    const script = startedScript().add("session.attached", { by: "load", context: "kept", result: null, deniedModes: denied });
    expect(played(script).deniedModes).toEqual(denied);
    script.add("session.attached", { by: "load", context: "kept", result: null });
    expect(played(script).deniedModes).toEqual([]);
  });

  test("that the agent enters are a warning in the turn", () => {
    const script = startedScript().add("session.privileged_mode", { modeId: "yolo" });
    expect(item(played(script), "note")).toMatchObject({ severity: "warning", cause: "privileged_mode", text: "yolo" });
  });
});

describe("a turn", () => {
  test("begins with its prompt and runs", () => {
    const log = played(startedScript());
    expect(log.agent).toBe("demo");
    expect(blocksText(turn(log).prompt)).toBe("hi there");
    expect(runningTurn(log)?.promptId).toBe("p1");
  });

  test("joins chunks without an id until another kind comes between", () => {
    const script = startedScript().say("p1", "Hel").say("p1", "lo");
    script.update("p1", "agent_thought_chunk", { content: { type: "text", text: "hm" } }).say("p1", "again");
    const items = turn(played(script)).items;
    expect(items.map((each) => each.kind)).toEqual(["message", "thought", "message"]);
    expect(blocksText(item(played(script), "message").blocks)).toBe("Hello");
  });

  test("joins chunks by their message id even when they interleave", () => {
    const script = startedScript().say("p1", "a", "m1").say("p1", "x", "m2").say("p1", "b", "m1");
    const log = played(script);
    expect(blocksText(item(log, "message", 0).blocks)).toBe("ab");
    expect(blocksText(item(log, "message", 1).blocks)).toBe("x");
  });

  test("ends once, completed", () => {
    const script = startedScript().say("p1", "done").add("prompt.completed", { stopReason: "end_turn", result: {} }, "p1");
    const log = played(script);
    expect(turn(log)).toMatchObject({ status: "completed", stopReason: "end_turn" });
    expect(runningTurn(log)).toBeNull();
  });

  test("ends once, failed, with the problem in it", () => {
    const script = startedScript().add("prompt.failed", { problem: { code: "interrupted", title: "Interrupted" } }, "p1");
    expect(turn(played(script))).toMatchObject({ status: "failed", problem: { code: "interrupted" } });
  });

  test("waits in the queue and starts without its prompt being said again", () => {
    const script = startedScript()
      .add("prompt.queued", { prompt: [{ type: "text", text: "next" }], position: 1, by: "alice" }, "p2")
      .say("p1", "first")
      .add("prompt.completed", { stopReason: "end_turn" }, "p1")
      .add("prompt.started", { by: "alice" }, "p2");
    const log = played(script);
    expect(log.turns.map((each) => each.status)).toEqual(["completed", "running"]);
    expect(blocksText(turn(log, 1).prompt)).toBe("next");
    expect(blocksText(item(log, "message").blocks)).toBe("first");
  });

  describe("in the queue", () => {
    const queued = () =>
      ["p2", "p3", "p4"].reduce(
        (script, id) => script.add("prompt.queued", { prompt: [{ type: "text", text: `say ${id}` }], position: 1, by: "alice" }, id),
        startedScript(),
      );
    const ids = (script: Script) => played(script).turns.map((turn) => turn.promptId);
    const prompt = [{ type: "text", text: "say more" }];

    test("shows the content of the last edit", () => {
      const script = queued().add("prompt.changed", { prompt, by: "bob" }, "p3");
      expect(played(script).turns.map((turn) => blocksText(turn.prompt))).toEqual(["hi there", "say p2", "say more", "say p4"]);
      expect(turn(played(script), 2)).toMatchObject({ status: "queued", by: "alice" });
    });

    test("moves before another one and to the end", () => {
      expect(ids(queued().add("prompt.changed", { before: "p2", by: "bob" }, "p4"))).toEqual(["p1", "p4", "p2", "p3"]);
      expect(ids(queued().add("prompt.changed", { before: "p4", by: "bob" }, "p2"))).toEqual(["p1", "p3", "p2", "p4"]);
      const script = queued().add("prompt.changed", { before: null, prompt, by: "bob" }, "p2");
      expect(ids(script)).toEqual(["p1", "p3", "p4", "p2"]);
      expect(blocksText(turn(played(script), 3).prompt)).toBe("say more");
    });

    test("keeps other turns in their places", () => {
      const script = queued().update(undefined, "agent_message_chunk", { content: { type: "text", text: "stray" } });
      script.add("prompt.queued", { prompt, position: 4, by: "alice" }, "p5").add("prompt.changed", { before: "p2", by: "bob" }, "p5");
      expect(ids(script)).toEqual(["p1", "p5", "p2", "p3", null, "p4"]);
      script.add("prompt.completed", { stopReason: "end_turn" }, "p1").add("prompt.started", { by: "alice" }, "p5");
      expect(runningTurn(played(script))?.promptId).toBe("p5");
      expect(ids(script.add("prompt.changed", { before: null, by: "bob" }, "p2"))).toEqual(["p1", "p5", "p3", "p4", null, "p2"]);
    });

    test("does not move for turns that are not there, and an unchanged fold is the same", () => {
      const before = played(queued());
      for (const [members, id] of [
        [{ before: "p9" }, "p2"],
        [{ before: "p2" }, "p9"],
        [{ before: "p2" }, "p2"],
      ] as const) {
        const event = { type: "prompt.changed", time: "", id: "k3-50", seq: 50, promptId: id, by: "bob", ...members };
        expect(fold(before, event as LogEvent).turns).toBe(before.turns);
      }
    });
  });

  test("that is cancelled in the queue is removed, and one that ran is stopped", () => {
    const script = startedScript()
      .add("prompt.queued", { prompt: [{ type: "text", text: "next" }], position: 1, by: "alice" }, "p2")
      .add("prompt.completed", { stopReason: "cancelled" }, "p2")
      .add("prompt.completed", { stopReason: "cancelled" }, "p1");
    expect(played(script).turns.map((turn) => turn.status)).toEqual(["completed", "removed"]);
  });

  test("takes late updates, and what belongs to no turn stands between", () => {
    const script = startedScript().add("prompt.completed", { stopReason: "end_turn" }, "p1");
    script.add("session.update", { late: true, update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: "late" } } }, "p1");
    script.update(undefined, "agent_message_chunk", { content: { type: "text", text: "stray" } });
    const log = played(script);
    expect(blocksText(item(log, "message", 0).blocks)).toBe("late");
    expect(turn(log, 1).status).toBe("between");
  });

  test("does not repeat the prompt when the agent echoes it", () => {
    const chunk = { sessionUpdate: "user_message_chunk", content: { type: "text", text: "hi there" } };
    const echo = startedScript().add("session.update", { echo: true, update: chunk }, "p1");
    expect(turn(played(echo)).items).toEqual([]);
    const other = startedScript().add("session.update", { update: chunk }, "p1");
    expect(turn(played(other)).items).toHaveLength(1);
  });

  test("shows replayed history of an adopted session", () => {
    const script = new Script().add("session.created", { session: { sessionId: "s", agent: "demo", state: "idle" }, adopted: true });
    const chunk = (kind: string, text: string) => ({ replayed: true, update: { sessionUpdate: kind, content: { type: "text", text } } });
    script.add("session.update", chunk("user_message_chunk", "old question")).add("session.update", chunk("agent_message_chunk", "old answer"));
    expect(turn(played(script)).items.map((each) => each.kind)).toEqual(["user", "message"]);
  });
});

describe("every event counts once", () => {
  const script = startedScript().say("p1", "one ").say("p1", "two");

  test("when a reconnect repeats some of them", () => {
    const log = foldAll(played(script), script.events.slice(2));
    expect(log).toEqual(played(script));
    expect(blocksText(item(log, "message").blocks)).toBe("one two");
  });

  test("when frames without a place in the log come between", () => {
    const marks: LogEvent[] = [
      { type: "ready", time: "", lastEventId: "k3-5" },
      { type: "ready", time: "", id: "k3-5", lastEventId: "k3-5" },
      { type: "shutdown", time: "", retryMs: 5 },
    ];
    expect(foldAll(played(script), marks)).toEqual(played(script));
  });

  test("an unknown type moves the cursor and nothing else", () => {
    const after = foldAll(EMPTY, startedScript().add("weather.changed", { sky: "blue" }).events);
    expect(after).toEqual({ ...played(startedScript()), seq: 4 });
  });

  test("a reset drops everything that was held", () => {
    const reset: LogEvent = { type: "reset", time: "", id: "z9-40", reason: "pruned", session: { sessionId: "s", agent: "demo", state: "idle", title: "T" } };
    const log = fold(played(script), reset);
    expect(log).toMatchObject({ epoch: "z9", seq: 40, turns: [], title: "T", agent: "demo" });
    expect(fold(log, { type: "prompt.started", time: "", id: "z9-40", seq: 40, promptId: "p9" })).toBe(log);
    expect(fold(log, { type: "prompt.started", time: "", id: "z9-41", seq: 41, promptId: "p9" }).turns).toHaveLength(1);
  });

  test("a new epoch is another history", () => {
    const other = new Script("q7").add("session.created", { session: { sessionId: "s", agent: "echo", state: "idle" } });
    expect(foldAll(played(script), other.events)).toMatchObject({ epoch: "q7", seq: 1, agent: "echo", turns: [] });
  });
});

describe("tool calls", () => {
  const call = { toolCallId: "t1", title: "Edit a file", kind: "edit", status: "pending", locations: [{ path: "/w/a", line: 3 }] };

  test("an update patches, null and absent members keep, arrays replace", () => {
    const script = startedScript()
      .update("p1", "tool_call", { ...call, content: [{ type: "content", content: { type: "text", text: "old" } }] })
      .update("p1", "tool_call_update", { toolCallId: "t1", title: null, status: "completed", content: [{ type: "diff", path: "/w/a", newText: "n" }] });
    const tool = item(played(script), "tool");
    expect(tool).toMatchObject({ title: "Edit a file", toolKind: "edit", status: "completed", locations: [{ path: "/w/a", line: 3 }] });
    expect(tool.content).toEqual([{ type: "diff", path: "/w/a", newText: "n" }]);
  });

  test("an update without its call makes the card", () => {
    const script = startedScript().update("p1", "tool_call_update", { toolCallId: "t9", status: "failed" });
    expect(item(played(script), "tool")).toMatchObject({ toolCallId: "t9", status: "failed", toolKind: "other" });
  });

  test("payloads of the wrong shape are survived", () => {
    const script = startedScript()
      .update("p1", "tool_call", { toolCallId: 7 })
      .update("p1", "tool_call", { toolCallId: "t1", title: 5, content: "x", locations: [null, { path: 1 }] })
      .update("p1", "agent_message_chunk", { content: null })
      .update("p1", "plan", { entries: [null, 4, { content: 1 }] })
      .add("session.update", { update: null }, "p1")
      .add("request.created", { requestId: 3 }, "p1")
      .add("prompt.failed", { problem: "?" }, "p1");
    const log = played(script);
    expect(item(log, "tool")).toMatchObject({ title: "Tool call", content: [], locations: [] });
    expect(turn(log).problem?.code).toBe("internal");
  });
});

describe("requests", () => {
  test("are open until somebody resolves them", () => {
    const open = played(startedScript().add("request.created", ASK, "p1"));
    expect(openRequests(open).map((request) => request.title)).toEqual(["Write notes.md"]);

    const result = { outcome: { outcome: "selected", optionId: "yes" } };
    const script = startedScript().add("request.created", ASK, "p1");
    script.add("request.resolved", { requestId: "r1", resolution: "answered", by: "bob", result }, "p1");
    const log = played(script);
    expect(openRequests(log)).toEqual([]);
    expect(item(log, "request").resolution).toEqual({ how: "answered", by: "bob", optionId: "yes", action: null, refused: false });
  });

  test("share what they do not touch with the state before", () => {
    const before = foldAll(EMPTY, startedScript().add("prompt.completed", {}, "p1").add("prompt.started", { prompt: [] }, "p2").events);
    const after = foldAll(before, [{ ...ASK, type: "request.created", time: "", id: "k3-6", seq: 6, promptId: "p2" }]);
    expect(after.turns[0]).toBe(before.turns[0]);
    expect(after.turns[1]).not.toBe(before.turns[1]);
  });
});

describe("the session around the turns", () => {
  test("modes, options, commands, usage and title follow their events", () => {
    const script = startedScript()
      .update("p1", "current_mode_update", { currentModeId: "act" })
      .update("p1", "config_option_update", { configOptions: [{ id: "model", name: "Model", type: "select", currentValue: "a", options: [] }] })
      .update("p1", "available_commands_update", { availableCommands: [{ name: "help", description: "d" }, { name: "web", description: "d", input: { hint: "query" } }] })
      .update("p1", "usage_update", { used: 10, size: 100, cost: { amount: 0.5, currency: "EUR" } })
      .update("p1", "session_info_update", { title: "From the agent" });
    const log = played(script);
    expect(log.modes?.currentModeId).toBe("act");
    expect(log.configOptions[0]?.id).toBe("model");
    expect(log.commands.map(({ name, hint }) => [name, hint])).toEqual([["help", null], ["web", "query"]]);
    expect(log.usage).toEqual({ used: 10, size: 100, cost: { amount: 0.5, currency: "EUR" } });
    expect(log.title).toBe("From the agent");
  });

  test("a person's title outranks the agent's", () => {
    const script = startedScript().add("session.changed", { by: "alice", title: "Mine" });
    script.update("p1", "session_info_update", { title: "Agent's" });
    expect(played(script).title).toBe("Mine");
  });

  test("a lost context is said where it happened", () => {
    const script = startedScript().add("prompt.completed", { stopReason: "end_turn" }, "p1");
    script.add("session.attached", { by: "fresh", context: "lost", result: {} });
    expect(item(played(script), "note").severity).toBe("warning");
  });

  test("closing and opening again", () => {
    const script = startedScript().add("session.closed", { by: "alice" });
    expect(played(script).closed).toBe(true);
    expect(played(script.add("session.attached", { by: "load", context: "kept", result: null })).closed).toBe(false);
  });
});

test("the end of a connection to the agent's host is shown with the reason", () => {
  const log = foldAll(EMPTY, startedScript().add("prompt.completed", { stopReason: "end_turn" }, "p1").add("agent.exited", { exitCode: null, signal: null, stderrTail: "", disconnected: "the connection was lost" }).events);
  const note = log.turns.flatMap((turn) => turn.items).find((item) => item.kind === "note");
  expect(note).toMatchObject({ severity: "warning", cause: "agent_disconnected", detail: "the connection was lost" });
});
