// Parses a `text/event-stream` as in the HTML standard: all three line ends, a byte order mark, frames split at any
// byte.

export interface Frame {
  id: string | null;
  event: string;
  data: string;
}

export interface SseHandlers {
  frame(frame: Frame): void;
  retry(milliseconds: number): void;
}

export class SseParser {
  readonly #handlers: SseHandlers;
  /** The bytes since the last line end, in pieces, so that a long line is joined once and not for each chunk. */
  #rest: string[] = [];
  #skipLineFeed = false;
  #first = true;
  #event = "";
  #data: string[] = [];
  #id: string | null = null;

  constructor(handlers: SseHandlers) {
    this.#handlers = handlers;
  }

  push(chunk: string): void {
    if (chunk === "") return;
    let start = 0;
    if (this.#first) {
      this.#first = false;
      if (chunk.charCodeAt(0) === 0xfeff) start = 1;
    }
    if (this.#skipLineFeed) {
      this.#skipLineFeed = false;
      if (chunk[start] === "\n") start += 1;
    }
    const ends = /\r\n?|\n/g;
    ends.lastIndex = start;
    for (let end = ends.exec(chunk); end; end = ends.exec(chunk)) {
      this.#rest.push(chunk.slice(start, end.index));
      start = ends.lastIndex;
      if (end[0] === "\r" && start === chunk.length) this.#skipLineFeed = true;
      const line = this.#rest.length === 1 ? this.#rest[0]! : this.#rest.join("");
      this.#rest = [];
      this.#line(line);
    }
    if (start < chunk.length) this.#rest.push(chunk.slice(start));
  }

  #line(line: string): void {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.#handlers.retry(Number(value));
  }

  #dispatch(): void {
    const data = this.#data;
    const event = this.#event || "message";
    this.#data = [];
    this.#event = "";
    if (data.length > 0) this.#handlers.frame({ id: this.#id, event, data: data.join("\n") });
  }
}
