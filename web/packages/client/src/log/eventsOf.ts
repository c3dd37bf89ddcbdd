// Reads one stream to its end, without a reconnect.

import { type LogEvent, parseEvent } from "../event.js";
import { SseParser } from "./sse.js";

/**
 * The events of a response, for example of `promptStream`. A stream whose last event is not `end` was cut: its later events are in
 * the log of the session.
 */
export async function* eventsOf(response: Response): AsyncGenerator<LogEvent, void> {
  let events: LogEvent[] = [];
  const parser = new SseParser({
    retry: () => undefined,
    frame: ({ data }) => {
      const event = parseEvent(data);
      if (event) events.push(event);
    },
  });
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  try {
    for (let piece = await reader?.read(); piece && !piece.done; piece = await reader?.read()) {
      parser.push(decoder.decode(piece.value, { stream: true }));
      yield* events;
      events = [];
    }
  } finally {
    await reader?.cancel();
  }
}
