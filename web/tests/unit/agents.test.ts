import { expect, test } from "vitest";
import type { Agent, SessionSummary as Session } from "@acp-gateway/client";
import { explainProblem } from "../../src/model/explain";
import { agentState, kindWords, startable } from "../../src/model/agents";
import { recentFolders } from "../../src/model/folders";

const some = (members: Partial<Agent>) => members as Agent;
const agent = (name: string, state: string): Agent => some({ name, status: { state, detail: null } });

test("the kind is where an agent runs, else its protocol", () => {
  expect(kindWords(some({ name: "a", kind: "local", dialect: "acp" }))).toBe("Command");
  expect(kindWords(some({ name: "a", kind: "local", dialect: "early-acp" }))).toBe("Early ACP");
  expect(kindWords(some({ name: "a", kind: "local", dialect: "stream-json" }))).toBe("Claude Code protocol");
  expect(kindWords(some({ name: "a", kind: "remote", dialect: "acp" }))).toBe("Remote host");
  expect(kindWords(some({ name: "a", kind: "fleet", dialect: "acp" }))).toBe("Fleet member");
  expect(kindWords(some({ name: "a", kind: "later" }))).toBe("Command");
});

test("an agent that cannot start is never chosen", () => {
  const agents = [agent("away", "disconnected"), agent("drained", "draining"), agent("failed", "unavailable"), agent("good", "available")];
  expect(startable(agents, null)).toBe("good");
  expect(startable(agents, "failed")).toBe("failed");
  expect(startable(agents, "away")).toBe("good");
  expect(startable(agents.slice(0, 3), null)).toBe("failed");
  expect(startable(agents.slice(0, 2), null)).toBeNull();
  expect(agentState(some({ name: "a", status: { state: "unavailable", detail: "no such file" } })).detail).toBe("No such file.");
});

test("recent folders are those of the agent, without folders of one session", () => {
  const session = (sessionId: string, name: string, cwd: string) => ({ sessionId, agent: name, cwd }) as Session;
  const sessions = [session("1", "a", "/w/x"), session("2", "a", "/w/2"), session("3", "b", "/w/y"), session("4", "a", "/w/x"), session("5", "a", "/w/z")];
  expect(recentFolders(sessions, "a")).toEqual(["/w/x", "/w/z"]);
  expect(recentFolders(null, "a")).toEqual([]);
});

test("errors of connections have a next step, and no repeated title", () => {
  const lost = explainProblem({ code: "agent_disconnected", title: "No connection to the agent", detail: "no connection to the agent: the connection was lost" });
  expect(lost.detail).toBe("The connection was lost.");
  expect(lost.hint).toMatch(/^Check that the agent's host is running/);
  expect(explainProblem({ code: "member_unavailable" }).hint).toMatch(/^Start acp-gateway connect/);
});
