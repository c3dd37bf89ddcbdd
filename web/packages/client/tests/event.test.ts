import { expect, expectTypeOf, test } from "vitest";
import { type GatewayEventType, isKnown, type LogEvent } from "@acp-gateway/client";
import reference from "../../../../docs/reference/events.md?raw";

const event = (type: string): LogEvent => ({ type, time: "2026-11-28T00:00:00.000Z" });

test("each event type of the reference is known", () => {
  const rows = reference.split("## Event types")[1]!.split("\n").filter((row) => row.startsWith("| `"));
  const listed = rows.flatMap((row) => [...row.split("|")[1]!.matchAll(/`([^`]+)`/g)].map(([, type]) => type!));
  expect(listed.length).toBeGreaterThan(20);
  expect(listed.filter((type) => !isKnown(event(type)))).toEqual([]);
  expect(isKnown(event("prompt.later"))).toBe(false);
  expect(isKnown(event("constructor"))).toBe(false);
});

test("the type of an event selects its members", () => {
  const ended: LogEvent = { ...event("prompt.completed"), stopReason: "end_turn" };
  if (!isKnown(ended) || ended.type !== "prompt.completed") throw new Error("not known");
  expectTypeOf(ended.stopReason).toEqualTypeOf<string>();
  expectTypeOf<string>().not.toExtend<GatewayEventType>();
});
