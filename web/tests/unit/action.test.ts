import { describe, expect, test } from "vitest";
import { noteWords } from "../../src/model/words";
import { actionOf, requestAction } from "../../src/model/action";
import { openRequests, requestItem, toolOf } from "@acp-gateway/client";
import { item, played, startedScript } from "../../packages/client/tests/events";

describe("the action of a tool call", () => {
  test("has the whole command although the title is shortened", () => {
    const action = actionOf({ title: "rm -rf build", rawInput: { command: "rm -rf build && make all", cwd: "/w/sub" } }, null);
    expect(action).toMatchObject({ command: "rm -rf build && make all", cwd: "/w/sub", targets: [] });
  });

  test("joins arguments so that each can be told apart", () => {
    const { command } = actionOf({ rawInput: { command: ["bash", "-lc", "rm -rf build && make"] } }, null);
    expect(command).toBe('bash -lc "rm -rf build && make"');
  });

  test("names every path once, and shows what hides", () => {
    const toolCall = { rawInput: { file_path: "/w/a\u202etxt.exe" }, locations: [{ path: "/w/a\u202etxt.exe" }, { path: "/w/b" }] };
    expect(actionOf(toolCall, null).targets).toEqual(["/w/a[U+202E]txt.exe", "/w/b"]);
  });

  test("is read from the card of the call where the request has no input", () => {
    const log = played(
      startedScript()
        .update("p1", "tool_call", { toolCallId: "c", title: "Run", rawInput: { cmd: "make all" } })
        .add("request.created", { requestId: "r1", method: "session/request_permission", params: { toolCall: { toolCallId: "c" }, options: [] } }, "p1"),
    );
    const [request] = openRequests(log);
    expect(actionOf(request!.toolCall, toolOf(log, request!)).command).toBe("make all");
  });

  test("is that of the request although an earlier call has its id", () => {
    const request = (toolCall: object) => ({ requestId: "r1", method: "session/request_permission", params: { toolCall: { toolCallId: "c", ...toolCall }, options: [] } });
    const first = { toolCallId: "c", title: "ls", rawInput: { command: "ls" } };
    for (const status of ["in_progress", "completed"]) {
      const log = played(startedScript().update("p1", "tool_call", { ...first, status }).add("request.created", request({ title: "rm -rf build" }), "p1"));
      const [open] = openRequests(log);
      const card = toolOf(log, open!);
      expect(card).toMatchObject({ title: "rm -rf build" });
      expect(actionOf(open!.toolCall, card).command, status).toBeNull();
    }
    const log = played(startedScript().update("p1", "tool_call", { ...first, status: "completed" }).update("p1", "tool_call", { toolCallId: "c", title: "cat", status: "failed" }));
    const titles = log.turns.at(-1)!.items.map((part) => (part.kind === "tool" ? part.title : part.kind));
    expect(titles).toEqual(["ls", "cat"]);
  });

  test.each([
    [{ command: "rm", args: ["-rf", "/home/x y"] }, 'rm -rf "/home/x y"'],
    [{ command: "rm", args: "-rf /home/x" }, "rm -rf /home/x"],
    [{ command: ["rm", "-rf"], args: ["/home/x"] }, "rm -rf /home/x"],
    [{ cmd: "rm", arguments: ["-rf", 7] }, "rm -rf 7"],
    [{ program: "rm", args: ["-rf", "/x"] }, "rm -rf /x"],
    [{ argv: ["rm", "-rf", "/x"] }, "rm -rf /x"],
    [{ commands: ["cd /x", "rm -rf y"] }, "cd /x\nrm -rf y"],
    [{ input: { command: "rm", args: ["-rf", "/x"] } }, "rm -rf /x"],
    [{ params: { input: { cmd: "rm -rf /x" } } }, "rm -rf /x"],
    [{ arguments: '{"command": "rm", "args": ["-rf", "/x"]}' }, "rm -rf /x"],
    [[{ command: "cd /x" }, { command: "rm", args: ["-rf", "y"] }], "cd /x\nrm -rf y"],
    ['{"command": "rm -rf /x"}', "rm -rf /x"],
  ])("has the whole command of %j", (rawInput, command) => {
    expect(actionOf({ rawInput }, null)).toMatchObject({ command, isComplete: true });
  });

  test("has the variables of its command", () => {
    for (const env of [{ A: "1", B: 2 }, [{ name: "A", value: "1" }, { name: "B", value: "2" }], ["A=1", "B=2"]]) {
      expect(actionOf({ rawInput: { command: "make", env } }, null)).toMatchObject({ command: "make", env: ["A=1", "B=2"], isComplete: true });
    }
  });

  test("is not complete if a member of the input is nowhere else", () => {
    const odd: unknown[] = ["rm -rf /x", ["rm", "-rf"], { shell: "rm -rf /x" }, { command: "ls", script: "rm -rf /x" }, { command: "ls", stdin: "rm" }, { command: "rm", args: { recursive: true } }, { command: "ls", env: { A: {} } }, { cwd: "/a", input: { command: "ls", cwd: "/b" } }, { pattern: "x" }];
    for (const rawInput of odd) expect(actionOf({ rawInput }, null).isComplete, JSON.stringify(rawInput)).toBe(false);
    const deep = JSON.parse(`${'{"a":'.repeat(5000)}{"command":"rm"}${"}".repeat(5000)}`) as unknown;
    expect(actionOf({ rawInput: deep }, null).isComplete).toBe(false);
    for (const rawInput of [undefined, null, {}, { command: "ls", description: "Lists", timeout: 5 }, { file_path: "/a" }]) {
      expect(actionOf({ rawInput }, null).isComplete, JSON.stringify(rawInput)).toBe(true);
    }
  });

  test("is that of the subject, with the arguments that its call has", () => {
    const request = (params: object) => requestItem({ requestId: "r", method: "session/request_permission", params: { options: [], ...params } }, "k")!;
    const ofCommand = request({ title: "Run", subject: { type: "command", command: "rm", cwd: "/w", toolCallId: "c" } });
    expect(requestAction(ofCommand, null)).toMatchObject({ command: "rm", cwd: "/w", isComplete: true });
    const log = played(startedScript().update("p1", "tool_call", { toolCallId: "c", title: "Run", rawInput: { command: "rm", args: ["-rf", "/x"] } }));
    expect(requestAction(ofCommand, toolOf(log, ofCommand))).toMatchObject({ command: "rm -rf /x", cwd: "/w" });
    expect(requestAction(request({ subject: { type: "network", host: "example.org" } }), null)).toMatchObject({ command: null, isComplete: false, input: { host: "example.org" } });
    expect(requestAction(request({ toolCall: { toolCallId: "c", input: { command: "rm", args: ["-rf"] } } }), null).command).toBe("rm -rf");
    // An empty input says less than the card.
    expect(requestAction(request({ toolCall: { toolCallId: "c", rawInput: {} } }), toolOf(log, ofCommand)).command).toBe("rm -rf /x");
  });

  test("of an odd input is empty", () => {
    for (const rawInput of [null, 7, "text", [], { command: 7, path: {} }]) {
      expect(actionOf({ rawInput, locations: [null, 7] }, null)).toMatchObject({ command: null, targets: [], cwd: null });
    }
  });
});

describe("commands that an agent runs by itself", () => {
  test("show the output that updates carry in _meta", () => {
    const log = played(
      startedScript()
        .update("p1", "tool_call", { toolCallId: "c", _meta: { terminal_info: { terminal_id: "c" } } })
        .update("p1", "tool_call_update", { toolCallId: "c", _meta: { terminal_output_delta: { terminal_id: "c", data: "one\n" } } })
        .update("p1", "tool_call_update", { toolCallId: "c", _meta: { terminal_output_delta: { terminal_id: "c", data: "two\n" } } })
        .update("p1", "tool_call_update", { toolCallId: "c", _meta: { terminal_exit: { terminal_id: "c", exit_code: 2, signal: null } } }),
    );
    expect(item(log, "tool").commands?.["c"]).toMatchObject({ output: "one\ntwo\n", exited: true, exitCode: 2 });
    expect(log.terminals).toEqual({});
  });

  test("ignore members of another shape", () => {
    const log = played(startedScript().update("p1", "tool_call", { toolCallId: "c", _meta: { terminal_output: 7, terminal_exit: { exit_code: 1 } } }));
    expect(item(log, "tool").commands).toBeUndefined();
  });
});

test("a lost context says why", () => {
  const log = played(startedScript().add("session.attached", { by: "fresh", context: "lost", reason: "not_found", detail: "thread not found: 7" }));
  expect(item(log, "note")).toMatchObject({ severity: "warning", detail: "thread not found: 7" });
  expect(noteWords(item(log, "note"))).toMatch(/no longer has this session.*does not remember/);
});
