import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Cursors, Leader, type Told } from "@acp-gateway/client";

/** Plays one prepared answer for each stream that the leader opens. */
function lead(answers: (() => Response)[] = []) {
  const opened: { cursors: Cursors; lastEventId: string | null; summaries: boolean | undefined }[] = [];
  const told: Told[] = [];
  /** The streams that the leader closed, by their places in `opened`. */
  const closed: number[] = [];
  const leader = new Leader(
    async (cursors, { lastEventId, signal, summaries }) => {
      const place = opened.push({ cursors, lastEventId, summaries }) - 1;
      signal.addEventListener("abort", () => closed.push(place));
      const answer = answers[opened.length - 1];
      if (answer) return answer();
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("closed"))));
    },
    (message) => told.push(message),
  );
  return { leader, opened, told, closed };
}

function frame(position: number, session: string, seq: number): string {
  return `id: k3-g${position}\ndata: ${JSON.stringify({ id: `k3-${seq}`, seq, sessionId: session, type: "session.update", time: "" })}\n\n`;
}

const stream = (...frames: string[]) => new Response(frames.join(""), { status: 200, headers: { "content-type": "text/event-stream" } });
const settle = () => vi.advanceTimersByTimeAsync(50);

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("opens one stream for the sessions of all tabs, and sends each event with its own id", async () => {
  const run = lead([() => stream(frame(7, "a", 3), frame(8, "b", 9), frame(9, "a", 4))]);
  run.leader.follows("one", [["a", "k3-2"]], false);
  run.leader.follows("two", [["b", "k3-8"]], false);
  await settle();
  expect(run.opened).toEqual([{ cursors: [["a", "k3-2"], ["b", "k3-8"]], lastEventId: null, summaries: false }]);
  const parts = run.told.flatMap((told) => (told.kind === "events" ? [[told.session, told.events.map(({ id }) => id)]] : []));
  expect(parts).toEqual([["a", ["k3-3", "k3-4"]], ["b", ["k3-9"]]]);
  run.leader.close();
});

test("continues after the last event that it sent when another session is added", async () => {
  const run = lead([() => stream(frame(7, "a", 3))]);
  run.leader.follows("one", [["a", "k3-2"]], false);
  await settle();
  run.leader.follows("two", [["b", "k3-1"]], false);
  await settle();
  expect(run.opened.at(-1)?.cursors).toEqual([["a", "k3-3"], ["b", "k3-1"]]);
  run.leader.close();
});

test("keeps a stream until the next one is live, so that somebody always follows the sessions", async () => {
  const open = (frames: string) => () => new Response(new ReadableStream({ start: (controller) => controller.enqueue(new TextEncoder().encode(frames)) }));
  const run = lead([open(ready), open(""), open(ready)]);
  run.leader.follows("one", [["a", "k3-2"]], false);
  await settle();
  run.leader.follows("two", [["b", "k3-1"]], false);
  await settle();
  expect([run.opened.length, run.closed]).toEqual([2, []]);
  run.leader.follows("three", [["c", "k3-1"]], false);
  await settle();
  expect([run.opened.length, run.closed]).toEqual([3, [1, 0]]);
  run.leader.close();
  expect(run.closed).toEqual([1, 0, 2]);
});

test("opens no other stream for a tab that has all events, and one for a tab that misses some", async () => {
  const run = lead([() => stream(frame(7, "a", 3))]);
  run.leader.follows("one", [["a", "k3-2"]], false);
  await settle();
  const before = run.opened.length;
  run.leader.follows("two", [["a", "k3-3"]], false);
  await settle();
  expect(run.opened).toHaveLength(before);
  run.leader.follows("three", [["a", "k3-1"]], false);
  await settle();
  expect(run.opened.at(-1)?.cursors).toEqual([["a", "k3-1"]]);
  run.leader.close();
});

test("forgets the sessions of a tab that ended or is silent for three minutes", async () => {
  const run = lead();
  run.leader.follows("one", [["a", "k3-1"]], false);
  run.leader.follows("two", [["b", "k3-1"]], false);
  await settle();
  run.leader.gone("one");
  await settle();
  expect(run.opened.at(-1)?.cursors).toEqual([["b", "k3-1"]]);
  await vi.advanceTimersByTimeAsync(170_000);
  run.leader.here("two");
  await vi.advanceTimersByTimeAsync(20_000);
  run.leader.follows("three", [["c", "k3-1"]], false);
  run.leader.expire();
  await settle();
  expect(run.opened.at(-1)?.cursors).toEqual([["b", "k3-1"], ["c", "k3-1"]]);
  await vi.advanceTimersByTimeAsync(170_000);
  run.leader.expire();
  await settle();
  expect(run.opened.at(-1)?.cursors).toEqual([["c", "k3-1"]]);
  run.leader.close();
});

test("lets the tabs read again after a reset and after a deleted session, and alone after another refusal", async () => {
  const reset = `id: k4-g1\ndata: ${JSON.stringify({ id: "k4-g1", type: "reset", sessionId: "a", time: "", reason: "new_epoch" })}\n\n`;
  const refused = (status: number) => () => new Response(JSON.stringify({ code: "x", title: "x" }), { status });
  const kinds = async (answer: () => Response) => {
    const run = lead([answer]);
    run.leader.follows("one", [["a", "k3-2"], ["b", "k3-2"]], false);
    await settle();
    run.leader.close();
    return run.told.filter(({ kind }) => kind === "again" || kind === "alone");
  };
  expect(await kinds(() => stream(reset))).toEqual([{ kind: "again", sessions: ["a"] }]);
  expect(await kinds(refused(404))).toEqual([{ kind: "again", sessions: ["a", "b"] }]);
  expect(await kinds(refused(403))).toEqual([{ kind: "alone" }]);
});

const ready = `data: ${JSON.stringify({ type: "ready", time: "" })}\n\n`;
const summary = (session: string, title: string | null) =>
  `data: ${JSON.stringify({ type: "session.summary", sessionId: session, time: "", session: title === null ? null : { sessionId: session, title } })}\n\n`;
/** A stream that stays open. `more` adds frames. */
function openStream(...frames: string[]) {
  let send: ReadableStreamDefaultController<Uint8Array>;
  const more = (text: string) => send.enqueue(new TextEncoder().encode(text));
  const body = new ReadableStream<Uint8Array>({ start: (controller) => void (send = controller) });
  frames.forEach(more);
  return { answer: () => new Response(body), more, cut: () => send.close() };
}
const ofTheList = (told: Told[]): unknown[] =>
  told.flatMap((one): unknown[] => (one.kind === "readList" ? [one.tab] : one.kind === "list" ? [one.changes.map(({ session, summary }) => [session, summary?.title ?? null])] : []));

test("brings the changes of the list to tabs without a session, which read it when the stream is live", async () => {
  const first = openStream();
  const run = lead([first.answer]);
  run.leader.follows("one", [], true);
  await settle();
  expect(run.opened).toEqual([{ cursors: [], lastEventId: null, summaries: true }]);
  first.more(ready + summary("a", "A") + summary("b", null));
  await settle();
  expect(ofTheList(run.told)).toEqual([null, [["a", "A"], ["b", null]]]);
  expect(run.told.filter(({ kind }) => kind === "events" || kind === "again")).toEqual([]);
  // A later tab has missed changes, a known one has not.
  run.leader.follows("two", [], true);
  run.leader.follows("one", [], true);
  await settle();
  expect([run.opened.length, ofTheList(run.told).slice(2)]).toEqual([1, ["two"]]);
  first.more(`data: ${JSON.stringify({ type: "summaries.reset", time: "" })}\n\n`);
  await settle();
  expect(ofTheList(run.told).at(-1)).toBe(null);
  run.leader.gone("one");
  run.leader.gone("two");
  await settle();
  expect(run.closed).toEqual([0]);
});

test("another selection of sessions reads no list, because the previous stream lingers", async () => {
  const streams = [openStream(ready), openStream(ready), openStream(), openStream(ready)];
  const run = lead(streams.map(({ answer }) => answer));
  run.leader.follows("one", [], true);
  await settle();
  run.leader.follows("one", [["a", "k3-1"]], true);
  await settle();
  expect([run.opened.length, run.closed, ofTheList(run.told)]).toEqual([2, [], [null]]);
  streams[0]!.more(summary("b", "late"));
  await settle();
  expect(ofTheList(run.told)).toEqual([null, [["b", "late"]]]);
  await vi.advanceTimersByTimeAsync(1000);
  expect(run.closed).toEqual([0]);
  // The previous stream ends before the next one is live: a change may be missing.
  run.leader.follows("one", [["b", "k3-1"]], true);
  await settle();
  streams[1]!.cut();
  await settle();
  streams[2]!.more(ready);
  await settle();
  expect(ofTheList(run.told).at(-1)).toBe(null);
  run.leader.close();
  expect(run.closed).toContain(2);
});

test("a deleted session does not end the stream of the list", async () => {
  const gone = () => new Response(JSON.stringify({ code: "not_found", title: "x" }), { status: 404 });
  const run = lead([gone, openStream(ready).answer]);
  run.leader.follows("one", [["a", "k3-2"]], true);
  await settle();
  await settle();
  expect(run.told).toContainEqual({ kind: "again", sessions: ["a"] });
  expect(run.opened.map(({ cursors, summaries }) => [cursors, summaries])).toEqual([[[["a", "k3-2"]], true], [[], true]]);
  expect(ofTheList(run.told)).toEqual([null]);
  run.leader.close();
});
