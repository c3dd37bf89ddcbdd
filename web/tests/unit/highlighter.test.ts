import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Highlighter } from "../../src/highlight/highlighter";
import type { Task } from "../../src/highlight/worker";

class FakeWorker {
  static all: FakeWorker[] = [];
  readonly tasks: Task[] = [];
  ended = false;
  onmessage: (event: { data: unknown }) => void = () => {};
  onerror: () => void = () => {};

  constructor() {
    FakeWorker.all.push(this);
  }

  postMessage(task: Task): void {
    this.tasks.push(task);
  }

  terminate(): void {
    this.ended = true;
  }
}

const task = (text: string): Task => ({ language: "rust", text });
const live = () => new AbortController().signal;
const words = (text: string) => [{ text, kind: "keyword" }];
const made = () => new Highlighter(() => new FakeWorker() as unknown as Worker);

beforeEach(() => {
  FakeWorker.all = [];
  vi.useFakeTimers();
});
afterEach(() => void vi.useRealTimers());

test("tasks run one after another in one worker", async () => {
  const highlighter = made();
  const both = Promise.all([highlighter.highlight(task("a"), live()), highlighter.highlight(task("b"), live())]);
  const [worker] = FakeWorker.all;
  expect(worker!.tasks).toEqual([task("a")]);
  worker!.onmessage({ data: words("a") });
  worker!.onmessage({ data: words("b") });
  expect(await both).toEqual([words("a"), words("b")]);
  expect(FakeWorker.all).toHaveLength(1);
});

test("a task that takes too long ends its worker, and the next task gets another", async () => {
  const highlighter = made();
  const late = highlighter.highlight(task("a"), live());
  const next = highlighter.highlight(task("b"), live());
  vi.advanceTimersByTime(2_000);
  expect(await late).toBeNull();
  expect(FakeWorker.all[0]!.ended).toBe(true);
  FakeWorker.all[1]!.onmessage({ data: words("b") });
  expect(await next).toEqual(words("b"));
  vi.advanceTimersByTime(10_000);
  expect(FakeWorker.all[1]!.ended).toBe(false);
});

test("a task that nobody needs does not run", async () => {
  const highlighter = made();
  const abort = new AbortController();
  const all = Promise.all([highlighter.highlight(task("a"), live()), highlighter.highlight(task("b"), abort.signal), highlighter.highlight(task("c"), live())]);
  abort.abort();
  const [worker] = FakeWorker.all;
  worker!.onmessage({ data: null });
  worker!.onmessage({ data: words("c") });
  expect(await all).toEqual([null, null, words("c")]);
  expect(worker!.tasks).toEqual([task("a"), task("c")]);
});

test("a worker that does not load leaves all code plain", async () => {
  const highlighter = made();
  const all = Promise.all([highlighter.highlight(task("a"), live()), highlighter.highlight(task("b"), live())]);
  FakeWorker.all[0]!.onerror();
  expect(await all).toEqual([null, null]);
  expect(await highlighter.highlight(task("c"), live())).toBeNull();
  expect(FakeWorker.all).toHaveLength(1);
});
