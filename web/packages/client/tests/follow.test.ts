import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { backoff, type Connection, Follower, type LogEvent } from "@acp-gateway/client";

interface Opened {
  lastEventId: string | null;
  at: number;
}

/** Plays one prepared answer for each connection that the follower makes. */
function follow(answers: (() => Response | Promise<never>)[]) {
  const opened: Opened[] = [];
  const events: LogEvent[] = [];
  const states: Connection[] = [];
  const follower = new Follower({
    open: async (lastEventId, signal) => {
      opened.push({ lastEventId, at: Date.now() });
      const next = answers[opened.length - 1];
      if (next) return next();
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("closed"))));
    },
    events: (batch) => events.push(...batch),
    connection: (connection) => states.push(connection),
  });
  return { follower, opened, events, states };
}

function stream(...frames: string[]): () => Response {
  return () => new Response(frames.join(""), { status: 200, headers: { "content-type": "text/event-stream" } });
}

function frame(seq: number, type = "session.update"): string {
  return `id: k3-${seq}\nevent: ${type}\ndata: ${JSON.stringify({ id: `k3-${seq}`, seq, type, time: "" })}\n\n`;
}

function mark(type: string, members: object = {}): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, time: "", ...members })}\n\n`;
}

function problem(status: number, code: string, headers: Record<string, string> = {}): () => Response {
  return () => new Response(JSON.stringify({ code, title: code }), { status, headers });
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("comes back from the last id that it saw", async () => {
  const run = follow([stream("retry: 1000\n", frame(1), ":\n", mark("ready"), ":\n", frame(2), ":\n")]);
  await vi.advanceTimersByTimeAsync(1100);
  expect(run.opened.map((each) => each.lastEventId)).toEqual([null, "k3-2"]);
  expect(run.events.map((event) => event.type)).toEqual(["session.update", "ready", "session.update"]);
  expect(run.states.map((each) => each.state)).toEqual(["connecting", "live", "lost", "connecting"]);
  run.follower.close();
});

test("hands over the replay before it says that the stream is live", async () => {
  const order: string[] = [];
  const follower = new Follower({
    open: async () => stream(frame(1), frame(2), mark("ready"), frame(3))(),
    events: (batch) => order.push(...batch.map((event) => event.type + (event.seq ?? ""))),
    connection: (connection) => order.push(connection.state),
  });
  await vi.advanceTimersByTimeAsync(0);
  follower.close();
  expect(order).toEqual(["connecting", "session.update1", "session.update2", "ready", "live", "session.update3", "lost"]);
});

test("waits longer after each failure, and no longer than the cap", async () => {
  const refused = () => Promise.reject(new Error("refused"));
  const run = follow(Array.from({ length: 9 }, () => refused));
  await vi.advanceTimersByTimeAsync(300_000);
  const waits = run.opened.slice(1, 9).map((each, index) => each.at - run.opened[index]!.at);
  expect(waits).toHaveLength(8);
  waits.forEach((wait, index) => {
    const full = Math.min(30_000, 1000 * 2 ** index);
    expect(wait).toBeGreaterThanOrEqual(full / 2);
    expect(wait).toBeLessThanOrEqual(full);
  });
  run.follower.close();
});

test("a shutdown names the time to come back", async () => {
  const run = follow([stream(frame(1), mark("ready"), mark("shutdown", { retryMs: 7000 }))]);
  await vi.advanceTimersByTimeAsync(6900);
  expect(run.opened).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(200);
  expect(run.opened).toHaveLength(2);
  run.follower.close();
});

test("a passing problem is asked again, with the wait that it names", async () => {
  const passing = mark("problem", { problem: { code: "draining", detail: "Draining", retryAfterSeconds: 3 } });
  const run = follow([stream(passing), problem(503, "pool_full", { "retry-after": "2" })]);
  await vi.advanceTimersByTimeAsync(5100);
  expect(run.opened).toHaveLength(3);
  run.follower.close();
});

test.each([
  [401, "unauthorized"],
  [404, "not_found"],
])("a %i ends it", async (status, code) => {
  const run = follow([problem(status, code)]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(run.opened).toHaveLength(1);
  expect(run.states.at(-1)).toMatchObject({ state: "refused", error: { status, problem: { code } } });
});

test("a stream of a session that the user may no longer read ends", async () => {
  const run = follow([stream(frame(1), mark("ready"), mark("problem", { problem: { code: "not_found", title: "Not found" } }))]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(run.opened).toHaveLength(1);
  expect(run.states.at(-1)).toMatchObject({ state: "refused", error: { status: 404, problem: { code: "not_found" } } });
});

test("a position moves the cursor and is no event", async () => {
  const position = `id: k3-9\nevent: position\ndata: ${JSON.stringify({ id: "k3-9", type: "position", time: "" })}\n\n`;
  const run = follow([stream(frame(1), mark("ready"), position)]);
  await vi.advanceTimersByTimeAsync(1100);
  expect(run.opened.map((each) => each.lastEventId)).toEqual([null, "k3-9"]);
  expect(run.events.map((event) => event.type)).toEqual(["session.update", "ready"]);
  run.follower.close();
});

test("a body that ends without an end was cut, also behind the last event of a session", async () => {
  const run = follow([stream(frame(1), mark("ready"), frame(2, "session.deleted"))]);
  await vi.advanceTimersByTimeAsync(1100);
  expect(run.opened.map((each) => each.lastEventId)).toEqual([null, "k3-2"]);
  run.follower.close();
});

test("a 204, an end and a deleted session end it", async () => {
  const finished = follow([() => new Response(null, { status: 204 })]);
  const ended = follow([stream(frame(1), mark("ready"), mark("end", { reason: "turn_ended", lastEventId: "k3-1" }))]);
  const end = mark("end", { reason: "session_deleted", lastEventId: "k3-2" });
  const deleted = follow([stream(frame(1), mark("ready"), frame(2, "session.deleted"), end)]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(finished.states.at(-1)).toEqual({ state: "ended", why: "finished" });
  expect(ended.states.at(-1)).toEqual({ state: "ended", why: "finished" });
  expect(ended.opened).toHaveLength(1);
  expect(deleted.states.at(-1)).toEqual({ state: "ended", why: "deleted" });
  expect(deleted.opened).toHaveLength(1);
});

test("silence for three heartbeats counts as lost", async () => {
  const silent = () => new Response(new ReadableStream({ pull: () => new Promise(() => undefined) }), { status: 200 });
  const run = follow([silent]);
  await vi.advanceTimersByTimeAsync(44_000);
  expect(run.states.map((each) => each.state)).toEqual(["connecting"]);
  await vi.advanceTimersByTimeAsync(3_000);
  expect(run.opened).toHaveLength(2);
  run.follower.close();
});

test("retryNow ends the wait", async () => {
  const run = follow([() => Promise.reject(new Error("refused"))]);
  await vi.advanceTimersByTimeAsync(0);
  run.follower.retryNow();
  await vi.advanceTimersByTimeAsync(0);
  expect(run.opened).toHaveLength(2);
  run.follower.close();
});

test("the wait is spread but never shorter than half", () => {
  expect(backoff(0, 1000, () => 0)).toBe(500);
  expect(backoff(0, 1000, () => 1)).toBe(1000);
  expect(backoff(50, 1000, () => 1)).toBe(30_000);
});
