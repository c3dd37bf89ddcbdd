import { expect, test } from "vitest";
import { changedList, type SessionPage, type SessionSummary } from "@acp-gateway/client";

const at = (id: string, second: number, seq = 1, title = id) =>
  ({ sessionId: id, title, lastActivityAt: `2026-11-21T22:15:0${second}.000Z`, lastEventId: `k3-${seq}` }) as unknown as SessionSummary;
const page = (sessions: SessionSummary[], nextCursor: string | null = null) => ({ sessions, nextCursor, lastEventId: "k3-g9" }) as SessionPage;
const changed = (list: SessionPage, ...summaries: SessionSummary[]) =>
  changedList(list, summaries.map((summary) => ({ session: summary.sessionId, summary }))).sessions;

test("the order is that of the gateway", () => {
  const list = page([at("b", 3), at("a", 1)]);
  expect(changed(list, at("a", 5, 2), at("d", 3), at("c", 2))).toEqual([at("a", 5, 2), at("b", 3), at("d", 3), at("c", 2)]);
  expect(list.sessions.map(({ sessionId }) => sessionId)).toEqual(["b", "a"]);
});

test("a deleted session leaves the list, also one that it does not have", () => {
  const list = page([at("b", 3), at("a", 1)]);
  const gone = ["a", "x"].map((session) => ({ session, summary: null }));
  expect(changedList(list, gone).sessions).toEqual([at("b", 3)]);
});

test("a summary that an answer overtook changes nothing", () => {
  const list = page([at("a", 4, 9, "new")]);
  expect(changed(list, at("a", 3, 8, "old"))).toEqual(list.sessions);
  expect(changed(list, at("a", 4, 9, "same"))).toEqual([at("a", 4, 9, "same")]);
  // Another epoch has other numbers.
  const restored = { ...at("a", 5, 2), lastEventId: "k4-2" };
  expect(changed(list, restored)).toEqual([restored]);
});

test("older sessions of the next page stay there, and come with their next activity", () => {
  const list = page([at("b", 6), at("c", 4)], "next");
  expect(changed(list, at("a", 3))).toEqual(list.sessions);
  expect(changed(list, at("a", 5)).map(({ sessionId }) => sessionId)).toEqual(["b", "a", "c"]);
  expect(changed(page(list.sessions), at("a", 3))).toHaveLength(3);
});
