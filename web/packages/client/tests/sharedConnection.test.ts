import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Listener, SharedConnection } from "@acp-gateway/client";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"] });
  // A browser with one tab, which gets each lock that it asks for.
  const request = (_name: string, _options: unknown, lead: () => Promise<void>) => lead();
  vi.stubGlobal("navigator", { locks: { request } });
  vi.stubGlobal("BroadcastChannel", class { postMessage() {} close() {} });
  vi.stubGlobal("document", { addEventListener() {}, hidden: false });
  vi.stubGlobal("addEventListener", () => undefined);
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("the leading tab does not forget itself while nothing happens", async () => {
  const opened: AbortSignal[] = [];
  const connection = SharedConnection.of("key", "https://gateway.example/", (_cursors, { signal }) => {
    opened.push(signal);
    const ready = new TextEncoder().encode('data: {"type":"ready","time":""}\n\n');
    const keepAlive = new TextEncoder().encode(": keep-alive\n\n");
    let timer: ReturnType<typeof setInterval>;
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(ready);
        timer = setInterval(() => controller.enqueue(keepAlive), 15_000);
      },
      cancel: () => clearInterval(timer),
    });
    return Promise.resolve(new Response(body));
  })!;
  const listener: Listener = { session: "s", cursor: () => "k-1", events: () => undefined, connection: () => undefined, again: () => undefined, alone: () => undefined };
  connection.listen(listener);
  // The name of the lock is a digest, which takes real time.
  await vi.waitFor(async () => {
    await vi.advanceTimersByTimeAsync(50);
    expect(opened.length).toBeGreaterThan(0);
  });
  const stream = opened.at(-1)!;
  for (let minutes = 0; minutes < 10; minutes += 1) await vi.advanceTimersByTimeAsync(60_000);
  expect(stream.aborted).toBe(false);
  expect(opened.at(-1)).toBe(stream);
  connection.close();
});

test("a list without other tabs is read when the stream is live, and polls after a refusal", async () => {
  const answers = [() => new Response(new ReadableStream({ start: (controller) => controller.enqueue(new TextEncoder().encode('data: {"type":"ready","time":""}\n\n')) })), () => new Response("{}", { status: 403 })];
  const summaries: unknown[] = [];
  const connection = SharedConnection.of("key", "https://gateway.example/", (cursors, call) => {
    summaries.push([cursors.length, call.summaries]);
    return Promise.resolve(answers[summaries.length - 1]!());
  })!;
  const heard: string[] = [];
  const list = { read: () => void heard.push("read"), changes: () => void heard.push("changes"), alone: () => void heard.push("alone") };
  const leave = connection.listenToList(list);
  const until = (count: number) =>
    vi.waitFor(async () => {
      await vi.advanceTimersByTimeAsync(50);
      expect(summaries.length).toBe(count);
    });
  await until(1);
  await vi.waitFor(() => expect(heard).toEqual(["read"]));
  leave();
  await vi.advanceTimersByTimeAsync(2000);
  connection.listenToList(list);
  await until(2);
  await vi.waitFor(() => expect(heard).toEqual(["read", "alone"]));
  expect(summaries).toEqual([[0, true], [0, true]]);
  connection.close();
});
