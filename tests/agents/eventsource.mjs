// An EventSource as npm has it, with nothing added: prints each event as a line of JSON until its stdin closes.
//
//   node eventsource.mjs URL
import { EventSource } from "eventsource";

const source = new EventSource(process.argv[2]);
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
source.onopen = () => print({ open: true });
source.onmessage = (event) => print({ id: event.lastEventId, data: JSON.parse(event.data) });
source.onerror = (error) => {
  print({ error: error.message ?? "closed", code: error.code ?? null });
  // A response with an error status ends the source: it never reconnects by itself.
  if (source.readyState === EventSource.CLOSED) process.exit(1);
};
process.stdin.resume();
process.stdin.on("end", () => {
  source.close();
  process.exit(0);
});
