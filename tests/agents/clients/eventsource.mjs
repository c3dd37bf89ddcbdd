// Follows a stream through cuts and restarts. Resolves when the stream is complete. `EventSource` is the class of
// the browser or of npm `eventsource`. The URL has `named=false` and a ticket.
export function follow(EventSource, url, onEvent, onClose = () => {}) {
  return new Promise((resolve, reject) => {
    let last;
    const source = new EventSource(url);
    source.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      onEvent(event);
      last = event.type;
      if (last !== "end") return;
      source.close();
      onClose("end");
      resolve();
    };
    // EventSource reconnects on its own, unless the status of the response ends it.
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) return reject(new Error("the gateway refused the stream"));
      onClose(last === "shutdown" ? last : "cut");
      last = undefined;
    };
  });
}
