import { createParser } from "eventsource-parser";

// Follows a stream through cuts and restarts. Resolves when the stream is complete.
export async function follow(url, key, onEvent, onClose = () => {}) {
  let lastEventId;
  let retryMs = 1000;
  for (;;) {
    let last = "cut";
    try {
      const headers = { Authorization: `Bearer ${key}`, Accept: "text/event-stream" };
      if (lastEventId) headers["Last-Event-ID"] = lastEventId;
      const response = await fetch(url, { headers });
      if (response.status === 204) return;
      if (response.status !== 200) throw new Error(`status ${response.status}`);
      const parser = createParser({
        onEvent: ({ id, data }) => {
          const event = JSON.parse(data);
          onEvent(event);
          lastEventId = id ?? lastEventId;
          last = event.type;
        },
        onRetry: (milliseconds) => (retryMs = milliseconds),
      });
      for await (const text of response.body.pipeThrough(new TextDecoderStream())) parser.feed(text);
    } catch (error) {
      console.error(`${error}; ${error.cause ?? ""}`);
    }
    onClose(["end", "shutdown"].includes(last) ? last : "cut");
    if (last === "end") return;
    await new Promise((resolve) => setTimeout(resolve, retryMs));
  }
}
