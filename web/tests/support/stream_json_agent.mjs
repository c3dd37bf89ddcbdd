// An agent in the protocol of the Claude Code CLI. It plays recordings of the CLI, one after the other:
//
//     stream_json_agent.mjs RECORDING…
//
// It sends the recorded lines between two lines of its client when the client has sent the earlier one, with the ids of the
// requests that it received. After the last recording, it begins again.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const read = (file) => readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));
// The gateway adds arguments of the CLI.
const entries = process.argv.slice(2).filter((argument) => argument.endsWith(".jsonl")).flatMap(read);
const isInitialize = ({ dir, msg }) => dir === "c2a" && msg.type === "control_request" && msg.request.subtype === "initialize";
const initialized = entries.find(({ dir, msg }) => dir === "a2c" && msg.type === "control_response")?.msg.response.response ?? {};
const played = entries.filter((entry) => !isInitialize(entry) && !(entry.dir === "a2c" && entry.msg.type === "control_response"));
let at = 0;

const send = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

/** Skips to the next line of the client of this type, and sends what the CLI sent after it. */
function play(type) {
  const next = (from) => played.findIndex(({ dir, msg }, index) => index >= from && dir === "c2a" && msg.type === type);
  const found = next(at) === -1 ? next(0) : next(at);
  if (found === -1) return;
  for (at = found + 1; at < played.length && played[at].dir === "a2c"; at += 1) send(played[at].msg);
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.type === "control_request") {
    const response = message.request.subtype === "initialize" ? initialized : {};
    send({ type: "control_response", response: { subtype: "success", request_id: message.request_id, response } });
  } else if (message.type === "user" || message.type === "control_response") {
    play(message.type);
  }
});
