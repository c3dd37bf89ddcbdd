import { expect, test } from "vitest";
import { EMPTY, foldAll } from "@acp-gateway/client";
import { mixedUpdates } from "../../../tests/support/mixed.mjs";
import { startedScript, turn } from "./events";

/** The best of three folds of a turn with this number of updates. */
function fold(updates: number): number {
  const script = startedScript();
  for (const { sessionUpdate, ...members } of mixedUpdates(updates)) script.update("p1", sessionUpdate, members);
  const times = Array.from({ length: 3 }, () => {
    const began = performance.now();
    const log = foldAll(EMPTY, script.events);
    // Of 20 updates, one message, one thought and two tool calls; the plan is one part.
    expect(turn(log).items).toHaveLength((updates / 20) * 4 + 1);
    return performance.now() - began;
  });
  return Math.min(...times);
}

// It folds 380,000 updates, which takes long beside other work.
test("the time of a fold grows in proportion to the turn", { timeout: 30_000 }, () => {
  fold(10_000);
  const [short, long] = [fold(20_000), fold(100_000)];
  console.log(`20,000 updates: ${short.toFixed(0)} ms; 100,000 updates: ${long.toFixed(0)} ms`);
  expect(long / short).toBeLessThan(5 * 3);
});
