import { expect, test } from "vitest";
import type { SessionSummary as Session } from "@acp-gateway/client";
import { grouped, matches, withShared } from "../../src/model/groups";

const NOW = new Date(2026, 10, 27, 12).getTime();
const HOUR = 3_600_000;

function session(title: string, state: string, hoursAgo: number): Session {
  const time = new Date(NOW - hoursAgo * HOUR).toISOString();
  return { sessionId: title, agent: "demo", title, cwd: "/srv/Shop", state, createdAt: time, updatedAt: time, lastActivityAt: time } as Session;
}

test("sessions are grouped by their state and their day, in their order", () => {
  const sessions = [
    session("b", "idle", 1),
    session("a", "waiting", 900),
    session("c", "running", 11),
    session("d", "idle", 13),
    session("e", "closed", 24 * 6),
    session("f", "idle", 24 * 7),
  ];
  const groups = grouped(sessions, NOW).map(({ name, sessions }) => [name, sessions.map(({ title }) => title).join("")]);
  expect(groups).toEqual([["Needs you", "a"], ["Today", "bc"], ["This week", "de"], ["Older", "f"]]);
  expect(grouped([], NOW)).toEqual([]);
});

test("sessions of others come below those that wait for the person", () => {
  const names = (sessions: Session[], shared: Session[]) => withShared(grouped(sessions, NOW), shared).map(({ name }) => name);
  const shared = [session("x", "idle", 1)];
  expect(names([session("a", "waiting", 1), session("b", "idle", 1)], shared)).toEqual(["Needs you", "Shared with me", "Today"]);
  expect(names([session("b", "idle", 1)], shared)).toEqual(["Shared with me", "Today"]);
  expect(names([], shared)).toEqual(["Shared with me"]);
  expect(names([], [])).toEqual([]);
});

test("the search finds words of the title, the agent and the folder", () => {
  const found = session("Fix the Login", "idle", 1);
  for (const search of ["", "login", "LOGIN demo", "shop fix"]) expect(matches(found, search), search).toBe(true);
  expect(matches(found, "login other")).toBe(false);
});
