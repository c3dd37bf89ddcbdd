import { describe, expect, test } from "vitest";
import { blocksText, openRequests, type SubagentItem } from "@acp-gateway/client";
import { item, played, startedScript, turn, type Script } from "./events";

const text = (words: string) => ({ type: "text", text: words });

describe("plans with names", () => {
  const steps = { type: "items", planId: "a", entries: [{ content: "Write", priority: "high", status: "pending" }] };

  test("stand beside the one without, change in their place, and go", () => {
    const script = startedScript()
      .update("p1", "plan", { entries: [{ content: "One", status: "pending" }] })
      .update("p1", "plan_update", { plan: steps })
      .update("p1", "plan_update", { plan: { type: "markdown", planId: "b", content: "*text*" } })
      .update("p1", "plan_update", { plan: { type: "file", planId: "c", uri: "file:///w/PLAN.md" } })
      .add("prompt.completed", { stopReason: "end_turn" }, "p1")
      .add("prompt.started", { prompt: [text("more")] }, "p2")
      .update("p2", "plan_update", { plan: { ...steps, entries: [{ content: "Write", status: "completed" }] } })
      .update("p2", "plan_removed", { planId: "c" })
      .update("p2", "plan_removed", { planId: "gone" })
      .update("p2", "plan_update", { plan: { entries: [] } });
    const log = played(script);
    expect(turn(log).items.map((each) => each.kind === "plan" && each.planId)).toEqual([null, "a", "b"]);
    expect(item(log, "plan", 1).entries[0]?.status).toBe("completed");
    expect(item(log, "plan", 2).markdown).toBe("*text*");
    expect(turn(log, 1).items).toEqual([]);
  });
});

describe("a compaction", () => {
  test("gathers its summary", () => {
    const script = startedScript()
      .update("p1", "compaction_update", { compactionId: "k", status: "in_progress" })
      .update("p1", "compaction_summary_chunk", { compactionId: "k", content: text("So ") })
      .update("p1", "compaction_summary_chunk", { compactionId: "k", content: text("far.") })
      .update("p1", "compaction_update", { compactionId: "k", status: "completed" });
    const found = item(played(script), "compaction");
    expect([found.status, blocksText(found.summary)]).toEqual(["completed", "So far."]);
    expect(turn(played(script)).items).toHaveLength(1);
  });

  test("that failed says why, and a summary may replace another", () => {
    const script = startedScript()
      .update("p1", "compaction_update", { compactionId: "k", status: "in_progress", summary: [text("a")] })
      .update("p1", "compaction_update", { compactionId: "k", status: "failed", summary: null, error: "no room" });
    expect(item(played(script), "compaction")).toMatchObject({ status: "failed", summary: [], error: "no room" });
  });
});

describe("subagents", () => {
  function child(script: Script, sessionUpdate: string, members: object): Script {
    return script.add("session.update", { subagent: "c1", update: { sessionUpdate, ...members } }, "p1");
  }

  function script(): Script {
    const made = startedScript()
      .update("p1", "subagent_update", { sessionId: "c1", title: "Scout", state: { state: "running" } })
      .update("p1", "session_message", { messageId: "m1", recipientSessionId: "c1", content: [text("Look.")] });
    child(made, "agent_thought_chunk", { content: text("hm") });
    child(made, "tool_call", { toolCallId: "t1", title: "Search", status: "in_progress" });
    made.update("p1", "tool_call", { toolCallId: "t1", title: "The parent's own" });
    child(made, "tool_call_update", { toolCallId: "t1", status: "completed" });
    child(made, "agent_message_chunk", { content: text("Fou") });
    made.say("p1", "meanwhile");
    return child(made, "agent_message_chunk", { content: text("nd.") });
  }

  test("have what they say and do under their name", () => {
    const log = played(script());
    expect(turn(log).items.map((each) => each.kind)).toEqual(["subagent", "tool", "message"]);
    const found = item(log, "subagent");
    expect([found.title, found.state]).toEqual(["Scout", "running"]);
    expect(found.items.map((each) => each.kind)).toEqual(["relay", "thought", "tool", "message"]);
    expect(found.items[2]).toMatchObject({ title: "Search", status: "completed" });
    expect(found.items[3]).toMatchObject({ blocks: [text("Found.")] });
    expect(item(log, "tool").title).toBe("The parent's own");
  });

  test("stay where they were first named, and their answer comes to them", () => {
    const more = script()
      .add("prompt.completed", { stopReason: "end_turn" }, "p1")
      .add("prompt.started", { prompt: [text("more")] }, "p2")
      .update("p2", "session_message", { messageId: "m2", senderSessionId: "c1" })
      .update("p2", "session_message_chunk", { messageId: "m2", content: text("It is there.") })
      .update("p2", "subagent_update", { sessionId: "c1", title: null, state: { state: "idle", stopReason: "end_turn" } });
    const log = played(more);
    expect(turn(log, 1).items).toEqual([]);
    const found = item(log, "subagent") as SubagentItem;
    expect([found.title, found.state]).toEqual([null, "idle"]);
    expect(found.items.at(-1)).toMatchObject({ kind: "relay", from: "c1", to: null, blocks: [text("It is there.")] });
  });

  test("that were never named are shown all the same", () => {
    const log = played(child(startedScript(), "agent_message_chunk", { content: text("hi") }));
    expect(item(log, "subagent").items).toHaveLength(1);
    expect(item(played(startedScript().update("p1", "session_message", { messageId: "m", content: [text("x")] })), "relay").blocks).toHaveLength(1);
  });
});

describe("questions", () => {
  const link = { requestId: "r1", method: "elicitation/create", params: { mode: "url", message: "Open", elicitationId: "e9", url: "https://x.example" } };

  test("say what was done with a page, and that it is done with", () => {
    const script = startedScript()
      .add("request.created", link, "p1")
      .add("request.resolved", { requestId: "r1", method: link.method, resolution: "answered", by: "bob", result: { action: "accept" } }, "p1");
    expect(item(played(script), "request")).toMatchObject({ title: "Open", done: false, resolution: { action: "accept", by: "bob" } });
    script.add("elicitation.completed", { elicitationId: "e9" }, "p1").add("elicitation.completed", { elicitationId: "other" }, "p1");
    expect(item(played(script), "request").done).toBe(true);
    expect(openRequests(played(script))).toEqual([]);
  });

  test("of the protocol have words, and a refusal is one", () => {
    const ask = (requestId: string, method: string, params: object) => ({ requestId, method, params });
    const script = startedScript()
      .add("request.created", ask("r1", "fs/write_text_file", { path: "/w/a\u202eb", content: "x" }), "p1")
      .add("request.created", ask("r2", "terminal/create", { command: "ls", args: ["-la", 1] }), "p1")
      .add("request.created", ask("r3", "terminal/wait_for_exit", { terminalId: "t1" }), "p1")
      .add("request.created", ask("r4", "_x/ask", {}), "p1")
      .add("request.resolved", { requestId: "r4", method: "_x/ask", resolution: "answered", by: "bob", error: { code: -32603, message: "no" } }, "p1");
    const log = played(script);
    expect(openRequests(log).map((each) => each.title)).toEqual(["Write /w/a[U+202E]b", "Run ls -la", "wait for exit of the terminal t1"]);
    expect(item(log, "request", 3)).toMatchObject({ title: "_x/ask", resolution: { refused: true, optionId: null } });
  });

  test("of another client's turn are shown and not offered", () => {
    const asked = { requestId: "r1", method: "fs/read_text_file", params: { path: "/w/a" }, acpClient: "bob/1" };
    const log = played(startedScript().add("request.created", asked, "p1"));
    expect(item(log, "request")).toMatchObject({ title: "Read /w/a", reserved: true });
    expect(openRequests(log)).toEqual([]);
  });

  test("of version 2 have a title, a description and a subject", () => {
    const params = { title: "Run it?", description: "It deletes.", subject: { type: "tool_call", toolCall: { toolCallId: "t1", title: "rm" } }, options: [] };
    const log = played(startedScript().add("request.created", { requestId: "r1", method: "session/request_permission", params }, "p1"));
    expect(item(log, "request")).toMatchObject({ title: "Run it?", description: "It deletes.", toolCallId: "t1" });
    const command = { title: "Run it?", subject: { type: "command", command: "rm -r x", cwd: "/w" }, options: [] };
    const other = played(startedScript().add("request.created", { requestId: "r1", method: "session/request_permission", params: command }, "p1"));
    expect(item(other, "request").description).toBe("rm -r x");
  });
});
