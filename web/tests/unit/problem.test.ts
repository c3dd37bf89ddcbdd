import { expect, test } from "vitest";
import { explainProblem } from "../../src/model/explain";

test("a detail is a sentence, and what the agent said is not said twice", () => {
  expect(explainProblem({ code: "interrupted", title: "Interrupted", detail: "the gateway was restarted" }).detail).toBe("The gateway was restarted.");
  expect(explainProblem({ code: "invalid", title: "Invalid", detail: "/w is no folder", errors: [{ pointer: "/cwd", detail: "is that so?" }] }).detail).toBe(
    "/w is no folder. Is that so?",
  );
  const acp = { code: -32603, message: "no model:\nout of words" };
  expect(explainProblem({ code: "agent_error", detail: `the agent answered with an error: ${acp.message}`, acp }).detail).toBe(acp.message);
  expect(explainProblem({ code: "agent_error", detail: "the agent failed", acp }).detail).toBe(`The agent failed. ${acp.message}`);
  expect(explainProblem({ code: "internal", title: "internal", detail: "internal" }).detail).toBeUndefined();
});
