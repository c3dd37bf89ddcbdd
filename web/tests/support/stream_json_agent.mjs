// An agent in the protocol of the Claude Code CLI. It sends the lines of a recording of the CLI:
//
//     stream_json_agent.mjs RECORDING
//
// The response to `initialize` and to each message are the recorded ones, with the ids of the requests that it received.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const lines = readFileSync(process.argv[2], "utf8").trim().split("\n").map((line) => JSON.parse(line));
const recorded = lines.filter(({ dir }) => dir === "a2c").map(({ msg }) => msg);
const initialized = recorded.find(({ type }) => type === "control_response");
const turn = recorded.filter(({ type }) => type !== "control_response");

const send = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.type === "control_request") {
    const isFirst = message.request.subtype === "initialize";
    const response = isFirst ? initialized.response.response : {};
    send({ type: "control_response", response: { subtype: "success", request_id: message.request_id, response } });
  } else if (message.type === "user") {
    turn.forEach(send);
  }
});
