// Runs one of the clients and prints a line of JSON for each event that it delivers and each close of its stream.
//
//   node run.mjs fetch|fetch-event-source|eventsource URL [KEY]
import { EventSource } from "eventsource";

const [client, url, key] = process.argv.slice(2);
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const { follow } = await import(`./${client}.mjs`);
const onEvent = (event) => print({ event });
const onClose = (closed) => print({ closed });
if (client === "eventsource") {
  await follow(EventSource, url, onEvent, onClose);
} else {
  // The library is made for browsers.
  globalThis.window = globalThis;
  globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
  await follow(url, key, onEvent, onClose);
}
