import { type About, ApiProblem, Unreachable } from "@acp-gateway/client";
import { expect, test } from "vitest";
import { LEVELS, missing, type Scope } from "../../src/model/rights";
import { granteeName, granteeOf, grantProblem, nameProblem } from "../../src/model/sharing";

const about = (...scopes: Scope[]) => ({ scopes }) as unknown as About;

test.each([
  ["read", [false, false, false, false]],
  ["prompt", [true, false, false, false]],
  ["approve", [true, true, false, false]],
  ["own", [true, true, true, false]],
] as const)("an action that needs the access %s is missing below it", (needed, expected) => {
  const key = about("read", "prompt");
  expect(LEVELS.map((given) => missing(key, "prompt", needed, given) === "access")).toEqual(expected);
});

test("a missing scope comes before a missing access, and unknown access permits", () => {
  expect(missing(about("read"), "prompt", "own", "read")).toBe("scope");
  expect(missing(about("read", "prompt"), "prompt", "own", null)).toBeNull();
  expect(missing(null, "prompt", "prompt", "read")).toBe("access");
  expect(missing(null, "admin")).toBe("scope");
  expect(missing(null, "approve")).toBeNull();
});

test("a name is checked before the gateway gets it", () => {
  expect(nameProblem("user", "bob@example.org", "alice", 1)).toBeNull();
  for (const name of ["bob smith", "b/b", "", "x".repeat(65), "bób"]) expect(nameProblem("user", name, "alice", 1), name).toMatch(/only letters/);
  expect(nameProblem("user", "alice", "alice", 1)).toBe("alice owns the session.");
  expect(nameProblem("user", "bob", "alice", 64)).toMatch(/64 users/);
  expect(nameProblem("group", "alice", "alice", 1), "a group with the name of the owner").toBeNull();
});

test("an error of the gateway becomes a sentence for people", () => {
  const problem = (status: number, code: string) => new ApiProblem(status, { code, title: "Title", detail: "detail" });
  expect(grantProblem(problem(422, "invalid"), "user:mallory")).toBe("There is no user “mallory”. A user needs a key of this gateway.");
  expect(grantProblem(problem(422, "invalid"), "group:team")).toMatch(/no group “team”/);
  expect(grantProblem(problem(409, "last_owner"), "user:alice")).toBe("alice owns the session.");
  expect(grantProblem(problem(403, "forbidden"), "user:bob")).toMatch(/does not permit/);
  expect(grantProblem(problem(503, "storage_full"), "user:bob")).toMatch(/disk is full/);
  expect(grantProblem(new Unreachable(null), "user:bob")).toMatch(/cannot be reached/);
});

test("grantees have names for people", () => {
  expect(granteeName(granteeOf("user", "bob"), "default")).toBe("bob");
  expect(granteeName(granteeOf("group", "team"), "default")).toBe("Group team");
  expect(granteeName("tenant", "acme")).toBe("All users of acme");
});
