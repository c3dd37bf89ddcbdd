import { describe, expect, test } from "vitest";
import { noteWords } from "../../src/model/words";
import { actionOf } from "../../src/model/action";
import { openRequests, toolOf } from "@acp-gateway/client";
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
