import { fetchEventSource } from "@microsoft/fetch-event-source";

// Follows a stream through cuts and restarts. Resolves when the gateway says that the stream is complete.
export function follow(url, key, onEvent, onClose = () => {}) {
  let last;
  const closed = () => onClose(["end", "shutdown"].includes(last) ? last : "cut");
  return fetchEventSource(url, {
    headers: { Authorization: `Bearer ${key}` },
    openWhenHidden: true,
    onmessage({ data }) {
      const event = JSON.parse(data);
      onEvent(event);
      last = event.type;
    },
    // The body ended. Only an error makes the library connect again.
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
