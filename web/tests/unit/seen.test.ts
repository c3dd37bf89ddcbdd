import { expect, test } from "vitest";
import type { SessionSummary as Session } from "@acp-gateway/client";
import { noticeOf } from "../../src/model/notices";
import { Seen } from "../../src/model/seen";

function session(sessionId: string, minute: number, members: Partial<Session> = {}): Session {
  const time = `2026-11-27T10:${String(minute).padStart(2, "0")}:00.000Z`;
  return { sessionId, agent: "demo", state: "idle", createdAt: time, updatedAt: time, lastActivityAt: time, ...members } as Session;
}

test("the first list counts as seen, and later activity does not", () => {
  const seen = new Seen();
  expect(seen.isUnread(session("a", 1))).toBe(false);
  seen.begin([session("a", 3), session("b", 5)]);
  expect([session("a", 3), session("b", 5), session("c", 5)].map((each) => seen.isUnread(each))).toEqual([false, false, false]);
  expect(seen.isUnread(session("a", 6))).toBe(true);
  expect(seen.isUnread(session("a", 6, { state: "running" }))).toBe(false);
  expect(seen.isUnread(session("a", 6, { state: "waiting" }))).toBe(true);
  seen.begin([session("a", 9)]);
  expect(seen.isUnread(session("a", 6))).toBe(true);
});

test("a session that was looked at is seen until its next activity", () => {
  const seen = new Seen();
  seen.begin([session("a", 1)]);
  seen.mark("b", session("b", 7).lastActivityAt);
  expect([session("b", 7), session("b", 8), session("a", 2)].map((each) => seen.isUnread(each))).toEqual([false, true, true]);
  seen.mark("b", session("b", 2).lastActivityAt);
  expect(seen.until("b")).toBe(session("b", 7).lastActivityAt);
});

test("the number of kept sessions is bounded", () => {
  const seen = new Seen();
  seen.begin([session("a", 1)]);
  for (let number = 0; number < 600; number += 1) seen.mark(`s${number}`, session("", 2).lastActivityAt);
  expect(Object.keys(seen.stored()!.sessions)).toHaveLength(500);
  expect([seen.until("s0"), seen.until("s599")]).toEqual([session("", 1).lastActivityAt, session("", 2).lastActivityAt]);
});

test.each([
  ["a request", session("a", 1, { state: "running" }), session("a", 2, { state: "waiting" }), "Waits for your answer"],
  ["a second request", session("a", 1, { state: "waiting" }), session("a", 2, { state: "waiting" }), null],
  ["an end", session("a", 1, { state: "running" }), session("a", 2, { lastOutcome: "completed" }), "Finished"],
  ["a short turn", session("a", 1, { lastOutcome: "completed" }), session("a", 2, { lastOutcome: "failed" }), "Failed"],
  ["a stop by a person", session("a", 1, { state: "running" }), session("a", 2, { lastOutcome: "cancelled" }), null],
  ["a start", session("a", 1), session("a", 2, { state: "running" }), null],
  ["a title", session("a", 1), session("a", 1, { title: "b", lastOutcome: "completed" }), null],
  ["a new session", undefined, session("a", 1, { state: "waiting" }), null],
])("the notice of %s", (_, before, now, expected) => expect(noticeOf(before, now)).toBe(expected));
