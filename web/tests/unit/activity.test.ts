import { expect, test } from "vitest";
import { summary, withActivities } from "../../src/model/activity";
import type { Item, ToolItem } from "@acp-gateway/client";

let calls = 0;
function call(status: string, toolKind = "read", content: ToolItem["content"] = []): ToolItem {
  calls += 1;
  return { kind: "tool", key: `t${calls}`, toolCallId: `${calls}`, title: "", toolKind, status, content, locations: [] };
}
const message: Item = { kind: "message", key: "m", messageId: null, blocks: [], startedAt: "", endedAt: "" };

function shape(items: Item[], live: boolean, isEnd = true): string[] {
  return withActivities(items, live, isEnd).map((row) => (row.kind === "activity" ? `${row.calls.length}${row.isOver ? " over" : ""}` : row.kind));
}

test("consecutive completed calls are one activity", () => {
  expect(shape([call("completed"), call("completed"), message, call("completed")], false)).toEqual(["2 over", "message", "1 over"]);
});

test("a failed call and a change to a file are parts of their own", () => {
  const change = call("completed", "edit", [{ type: "diff", path: "/a" }]);
  expect(shape([call("completed"), call("failed"), call("completed"), change, call("completed")], false)).toEqual(["1 over", "tool", "1 over", "tool", "1 over"]);
});

test("an activity of a running turn is over when the agent goes on", () => {
  expect(shape([call("completed"), call("in_progress")], true)).toEqual(["2"]);
  expect(shape([call("completed"), call("completed")], true)).toEqual(["2"]);
  expect(shape([call("completed"), call("completed"), message], true)).toEqual(["2 over", "message"]);
  expect(shape([call("completed"), call("completed")], true, false)).toEqual(["2 over"]);
});

test("an activity with a call that waits is not over", () => {
  expect(shape([call("completed"), call("pending"), message], true)).toEqual(["2", "message"]);
});

test("a call that was open at the end of its turn is a part of its own", () => {
  expect(shape([call("completed"), call("in_progress")], false)).toEqual(["1 over", "tool"]);
});

test("the summary counts the kinds", () => {
  expect(summary([call("completed"), call("completed"), call("completed", "execute")])).toBe("Read 2 files, ran one command");
  expect(summary([call("completed", "other"), call("completed", "constructor")])).toBe("Used 2 tools");
});
