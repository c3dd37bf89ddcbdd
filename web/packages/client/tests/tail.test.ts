import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { EMPTY, foldAll, type GatewayClient, type Item, logBefore, type LogEvent, openRequests, type Session, SessionFeed, type SessionLog } from "@acp-gateway/client";
import { mixedUpdates } from "../../../tests/support/mixed.mjs";
import { played, Script, startedScript, turn } from "./events";

/** A session of five turns: mixed updates, a queue with a change, a question, messages between turns and a late update. */
function script(updates = 300): Script {
  const script = startedScript();
  const mixed = (prompt: string) => {
    for (const { sessionUpdate, ...members } of mixedUpdates(updates)) script.update(prompt, sessionUpdate, members);
  };
  const queued = (prompt: string, text: string) => script.add("prompt.queued", { prompt: [{ type: "text", text }], by: "alice" }, prompt);
  const ends = (prompt: string) => script.add("prompt.completed", { stopReason: "end_turn" }, prompt);
  mixed("p1");
  queued("p2", "two");
  queued("p3", "three");
  script.add("prompt.changed", { prompt: [{ type: "text", text: "two, changed" }] }, "p2");
  ends("p1");
  script.update(undefined, "agent_message_chunk", { content: { type: "text", text: "between the turns" } });
  script.add("prompt.started", { by: "alice" }, "p2");
  mixed("p2");
  ends("p2");
  script.add("session.changed", { title: "A title", by: "alice" });
  script.add("prompt.started", { by: "alice" }, "p3");
  script.add("session.update", { late: true, update: { sessionUpdate: "tool_call_update", toolCallId: "run1", status: "failed" } }, "p2");
  queued("p4", "four");
  mixed("p3");
  const params = { sessionId: "s", toolCall: { toolCallId: "ask", title: "Delete it" }, options: [{ optionId: "yes", name: "Yes", kind: "allow_once" }] };
  script.add("request.created", { requestId: "r1", method: "session/request_permission", params }, "p3");
  for (let at = 0; at < updates; at += 1) script.say("p3", `word ${at} `, "waits");
  return script;
}

/** The session as the gateway has it after these events. */
function snapshotOf(events: readonly LogEvent[]): Session {
  const log = foldAll(EMPTY, events);
  const promptId = log.turns.find(({ status }) => status === "running")?.promptId ?? null;
  const queued = log.turns.filter(({ status }) => status === "queued").map((each) => each.promptId);
  const asked = new Set(openRequests(log).map(({ requestId }) => requestId));
  const requests = events
    .filter(({ type, ...event }) => type === "request.created" && asked.has(event["requestId"] as string))
    .map(({ type: _type, id: _id, seq: _seq, time, ...event }) => ({ promptId: null, ...event, createdAt: time }));
  const { agent, title, cwd, modes, usage } = log;
  const titleBy = log.titleByPerson ? "client" : "agent";
  return { sessionId: "s", agent, title, titleBy, cwd, modes, usage, state: "running", promptId, queued, requests, lastEventId: events.at(-1)!.id } as unknown as Session;
}

function headOf(events: readonly LogEvent[], prompt: string): LogEvent[] {
  const types = ["prompt.queued", "prompt.changed", "prompt.started"];
  return events.filter(({ type, promptId }) => promptId === prompt && types.includes(type));
}

function tailOf(events: readonly LogEvent[], start: number): SessionLog {
  const session = snapshotOf(events);
  const first = events[start]!;
  const ends = events.slice(start).filter(({ type }) => type === "prompt.completed");
  const open = [session.promptId, ...session.queued, ...ends.map(({ promptId }) => promptId)].filter((id) => typeof id === "string");
  const heads = [...new Set(open)].flatMap((prompt) => headOf(events, prompt));
  return foldAll(logBefore(first, session, heads), events.slice(start));
}

const seqOf = (item: Item) => Number(item.key.slice(1));

describe("the end of a log", () => {
  test("has what the whole log has from there on", () => {
    const { events } = script(50);
    const whole = foldAll(EMPTY, events);
    const changes = ["title", "titleByPerson", "agent", "cwd", "modes", "usage"] as const;
    for (let start = 4; start < events.length; start += 1) {
      const tail = tailOf(events, start);
      expect(tail.start).toBe(start);
      for (const name of changes) expect(tail[name], `${name} after ${start}`).toEqual(whole[name]);
      expect(openRequests(tail).map(({ requestId }) => requestId)).toEqual(["r1"]);
      expect(tail.incomplete).toBe(false);
      for (const turn of tail.turns.filter(({ promptId }) => promptId !== null)) {
        const full = whole.turns.find(({ promptId }) => promptId === turn.promptId)!;
        expect({ ...turn, cut: false, items: [] }).toEqual({ ...full, items: [] });
        // Parts that began after the start are the same. The message and the plan at the start go on.
        const own = new Map(turn.items.map((item) => [item.key, item]));
        const later = full.items.filter((item) => seqOf(item) > start);
        expect(later.filter((item) => item.kind !== "request").map((item) => own.get(item.key))).toEqual(later.filter((item) => item.kind !== "request"));
        const cards = (items: Item[]) => items.flatMap((item) => (item.kind === "tool" ? [item.toolCallId] : []));
        expect(cards(full.items).slice(-cards(turn.items).length || Infinity)).toEqual(cards(turn.items));
      }
    }
  });

  test("that lacks the beginning of a turn says so", () => {
    const { events } = script();
    const first = events.find(({ type }) => type === "prompt.changed")!;
    expect(foldAll(logBefore(first, snapshotOf(events), []), events.slice(first.seq! - 1)).incomplete).toBe(true);
  });

  test("with an event outside of turns has no empty turn", () => {
    const { events } = script();
    const start = events.findIndex(({ type }) => type === "session.changed");
    const [first] = tailOf(events, start).turns;
    expect([first?.promptId, first?.cut]).toEqual(["p3", false]);
    const between = events.findIndex(({ promptId, type }) => type === "session.update" && promptId === undefined);
    expect(tailOf(events, between).turns.map(({ status, cut }) => [status, cut]).slice(0, 4)).toContainEqual(["between", true]);
  });
});

describe("a feed", () => {
  beforeEach(() => {
    vi.stubGlobal("document", { hidden: false });
    vi.stubGlobal("requestAnimationFrame", (run: () => void) => setTimeout(run, 0));
    vi.stubGlobal("cancelAnimationFrame", (timer: number) => clearTimeout(timer));
  });
  afterEach(() => vi.unstubAllGlobals());

  /** A gateway with this log. `write` adds events to the open streams. */
  function gateway(events: LogEvent[]) {
    const streams = new Set<ReadableStreamDefaultController<Uint8Array>>();
    const reads: number[] = [];
    const frame = (event: LogEvent) => new TextEncoder().encode(`${event.id ? `id: ${event.id}\n` : ""}data: ${JSON.stringify(event)}\n\n`);
    const after = (id: string | null | undefined) => (id ? Number(id.split("-")[1]) : 0);
    const client = {
      session: async () => snapshotOf(events),
      eventPage: async (_session: string, { after: id, limit, types }: { after: string; limit: number; types?: string[] }) => {
        const fit = events.slice(after(id)).filter(({ type }) => types?.includes(type) ?? true);
        return { events: fit.slice(0, limit), lastEventId: "", more: true };
      },
      promptEventPage: async (_session: string, prompt: string) => ({ events: headOf(events, prompt), lastEventId: "", more: false }),
      events: async (_session: string, { lastEventId, follow, signal }: { lastEventId: string | null; follow: boolean; signal: AbortSignal }) => {
        reads.push(after(lastEventId));
        const body = new ReadableStream<Uint8Array>({
          start(stream) {
            for (const event of events.slice(after(lastEventId))) stream.enqueue(frame(event));
            if (!follow) {
              stream.enqueue(frame({ type: "end", time: "", reason: "caught_up" }));
              return stream.close();
            }
            stream.enqueue(frame({ type: "ready", time: "" }));
            streams.add(stream);
            signal.addEventListener("abort", () => streams.delete(stream));
          },
        });
        return new Response(body);
      },
    };
    const write = (more: LogEvent[]) => {
      events.push(...more);
      for (const stream of streams) more.forEach((event) => stream.enqueue(frame(event)));
    };
    return { client: client as unknown as GatewayClient, reads, write };
  }

  const live = (feed: SessionFeed) => vi.waitFor(() => expect(feed.state().caughtUp).toBe(true));

  test("of a short log reads it from its beginning", async () => {
    const { events } = startedScript().say("p1", "hi");
    const { client, reads } = gateway(events);
    const feed = new SessionFeed(client, null, "s");
    await live(feed);
    expect(reads).toEqual([0]);
    expect(feed.state().log).toEqual(foldAll(EMPTY, events));
    feed.close();
  });

  test("of a long log begins with its end, and reads twice as much each time, until all is there", async () => {
    const { events } = script(2000);
    const { client, reads } = gateway(events);
    const feed = new SessionFeed(client, null, "s");
    await live(feed);
    const all = events.length;
    expect(feed.state().log.start).toBe(all - 2000);
    await feed.loadEarlier();
    expect(feed.state().log.start).toBe(all - 4000);
    await feed.loadEarlier();
    await feed.loadEarlier();
    expect(feed.state()).toMatchObject({ earlier: "idle", log: { start: 0 } });
    expect(feed.state().log).toEqual(foldAll(EMPTY, events));
    await feed.loadEarlier();
    expect(reads).toEqual([all - 2000, all - 4000, all - 8000 > 0 ? all - 8000 : 0, 0].slice(0, reads.length));
    feed.close();
  });

  test("takes over the events that arrive while earlier ones are read", async () => {
    const { events } = script(2000);
    const { client, write } = gateway(events);
    const feed = new SessionFeed(client, null, "s");
    await live(feed);
    const later = new Script();
    later.events.push(...events);
    const loaded = feed.loadEarlier(true);
    expect(feed.state().earlier).toBe("loading");
    for (let at = 0; at < 5; at += 1) {
      later.say("p3", `word ${at} `, "later");
      write(later.events.slice(-1));
      await new Promise((done) => setTimeout(done, 1));
    }
    await loaded;
    await vi.waitFor(() => expect(feed.state().log.seq).toBe(later.events.length));
    expect(feed.state().log).toEqual(played(later));
    feed.close();
  });

  test("reads more if the end has a turn without its beginning", async () => {
    // Among the last events, the end of the turn p2 is not one of the first ends.
    const long = startedScript();
    long.add("prompt.started", { prompt: [{ type: "text", text: "two" }] }, "p2");
    for (const { sessionUpdate, ...members } of mixedUpdates(600)) long.update("p2", sessionUpdate, members);
    const before = long.events.length;
    for (let removed = 10; removed < 40; removed += 1) {
      long.add("prompt.queued", { prompt: [{ type: "text", text: "no" }] }, `p${removed}`).add("prompt.completed", { stopReason: "cancelled" }, `p${removed}`);
    }
    long.add("prompt.queued", { prompt: [{ type: "text", text: "three" }] }, "p3");
    long.say("p2", "the last words").add("prompt.completed", { stopReason: "end_turn" }, "p2").add("prompt.started", {}, "p3");
    while (long.events.length < before + 2000) long.say("p3", "x", "m");
    const { client } = gateway(long.events);
    const feed = new SessionFeed(client, null, "s");
    await live(feed);
    await vi.waitFor(() => expect(feed.state().log.start).toBe(0));
    expect(feed.state().log).toEqual(played(long));
    expect(turn(feed.state().log, 1).items.at(-1)).toMatchObject({ kind: "message", blocks: [{ text: "the last words" }] });
    feed.close();
  });

  test("keeps its log if the earlier part is refused", async () => {
    const { client } = gateway(script(2000).events);
    const feed = new SessionFeed(client, null, "s");
    await live(feed);
    const { log } = feed.state();
    client.events = async () => Response.json({ code: "forbidden" }, { status: 403 });
    await expect(feed.loadEarlier()).rejects.toThrow();
    expect(feed.state()).toMatchObject({ earlier: "failed", log: { start: log.start } });
    feed.close();
  });
});
