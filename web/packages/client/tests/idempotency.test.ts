import { expect, test } from "vitest";
import { ApiProblem, Attempt, Unreachable } from "@acp-gateway/client";

async function keysOf(errors: (Error | null)[], contents: string[]): Promise<string[]> {
  const attempt = new Attempt();
  const keys: string[] = [];
  for (const [index, error] of errors.entries()) {
    const send = async (_: string, { idempotencyKey }: { idempotencyKey: string }) => {
      keys.push(idempotencyKey);
      if (error) throw error;
    };
    await attempt.run(contents[index] ?? contents[0]!, send).catch((reason: unknown) => expect(reason).toBe(error));
  }
  return keys.map((key) => String(keys.indexOf(key)));
}

test("a request keeps its key while the gateway may have carried it out", async () => {
  const [lost, inFlight, refused] = [new Unreachable(null), new ApiProblem(409, { code: "idempotency_in_flight" }), new ApiProblem(422, { code: "invalid" })];
  expect(await keysOf([lost, inFlight, null, null], ["a"])).toEqual(["0", "0", "0", "3"]);
  expect(await keysOf([refused, null], ["a"])).toEqual(["0", "1"]);
  expect(await keysOf([lost, null], ["a", "b"])).toEqual(["0", "1"]);
});
