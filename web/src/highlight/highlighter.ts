// The page's side of the worker that highlights code: one task at a time, each with a deadline.

import type { Answer, Task } from "./worker";

const DEADLINE_MS = 2_000;

interface Waiting {
  task: Task;
  signal: AbortSignal;
  resolve(answer: Answer): void;
}

export class Highlighter {
  readonly #start: () => Worker;
  #worker: Worker | null = null;
  /** The first one runs. */
  readonly #waiting: Waiting[] = [];
  #deadline: ReturnType<typeof setTimeout> | undefined;
  #broken = false;

  constructor(start: () => Worker) {
    this.#start = start;
  }

  /** Null if the code stays plain: its language is unknown, it takes too long, or the worker does not start. */
  highlight(task: Task, signal: AbortSignal): Promise<Answer> {
    if (this.#broken) return Promise.resolve(null);
    return new Promise((resolve) => {
      this.#waiting.push({ task, signal, resolve });
      if (this.#waiting.length === 1) this.#next();
    });
  }

  #next(): void {
    while (this.#waiting[0]?.signal.aborted) this.#waiting.shift()!.resolve(null);
    const first = this.#waiting[0];
    if (!first) return;
    try {
      this.#worker ??= this.#started();
    } catch {
      return this.#fail();
    }
    this.#deadline = setTimeout(() => this.#late(), DEADLINE_MS);
    this.#worker.postMessage(first.task);
  }

  #started(): Worker {
    const worker = this.#start();
    worker.onmessage = ({ data }: MessageEvent<Answer>) => this.#done(data);
    worker.onerror = () => this.#fail();
    return worker;
  }

  #done(answer: Answer): void {
    clearTimeout(this.#deadline);
    this.#waiting.shift()?.resolve(answer);
    this.#next();
  }

  #late(): void {
    this.#worker?.terminate();
    this.#worker = null;
    this.#done(null);
  }

  /** The worker does not load, for example after an upgrade of the gateway. The page stays as it is. */
  #fail(): void {
    this.#broken = true;
    clearTimeout(this.#deadline);
    this.#worker?.terminate();
    this.#worker = null;
    for (const { resolve } of this.#waiting.splice(0)) resolve(null);
  }
}
