import { fetchEventSource } from "@microsoft/fetch-event-source";

// Follows a stream through cuts and restarts. Resolves when the stream is complete.
export function follow(url, key, onEvent, onClose = () => {}) {
  let last;
  let lastEventId;
  const closed = () => onClose(["end", "shutdown"].includes(last) ? last : "cut");
  return fetchEventSource(url, {
    headers: { Authorization: `Bearer ${key}` },
    openWhenHidden: true,
    // The library stores an id before it has the data. A cut between the two would lose the event.
    fetch(input, { headers: { "last-event-id": _, ...headers }, ...init }) {
      if (lastEventId) headers["last-event-id"] = lastEventId;
      return fetch(input, { ...init, headers });
    },
    onmessage({ id, data }) {
      const event = JSON.parse(data);
      onEvent(event);
      last = event.type;
      lastEventId = id || lastEventId;
    },
    // The body ended. The library reconnects only after an error.
    onclose() {
      if (last !== "end") throw new Error("the stream is not complete");
      closed();
    },
    onerror(error) {
      console.error(`${error}`);
      closed();
      last = undefined;
    },
  });
}
