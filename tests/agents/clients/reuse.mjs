// Reads the streams of turns to their end and sends the next request at once, for clients that keep connections.
//
//   node reuse.mjs fetch|agent URL SESSION KEY TURNS
//
// Prints how many turns it ran and, with `agent`, how many connections it used. Every failed request ends it with an error.
import http from "node:http";

const [kind, url, session, key, turns] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
const prompts = `/v1/sessions/${session}/prompts`;
const ports = new Set();
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

async function byFetch(method, path, accept, body) {
  const response = await fetch(url + path, { method, headers: { ...headers, Accept: accept }, body });
  return { status: response.status, text: await response.text() };
}

function byAgent(method, path, accept, body) {
  return new Promise((resolve, reject) => {
    const request = http.request(url + path, { method, agent, headers: { ...headers, Accept: accept } }, (response) => {
      let text = "";
      ports.add(response.socket.localPort);
      response.setEncoding("utf8").on("data", (piece) => (text += piece));
      response.on("end", () => resolve({ status: response.statusCode, text })).on("error", reject);
    });
    request.on("error", reject);
    request.end(body);
  });
}

const call = kind === "agent" ? byAgent : byFetch;
const begin = () => call("POST", prompts, "application/json", JSON.stringify({ prompt: "stream n=3" }));
let next = await begin();
for (let turn = 0; turn < turns; turn += 1) {
  if (next.status !== 202) throw new Error(`${next.status}: ${next.text}`);
  const { promptId } = JSON.parse(next.text);
  const stream = call("GET", `${prompts}/${promptId}/events`, "text/event-stream");
  // With the agent's only connection, this request waits for the end of the stream and is sent directly after it.
  const after = kind === "agent" ? begin() : null;
  const { status, text } = await stream;
  if (status !== 200 || !text.includes("event: end")) throw new Error(`${status}: ${text}`);
  next = kind === "agent" ? await after : await begin();
}
process.stdout.write(`${JSON.stringify({ turns: Number(turns), connections: ports.size })}\n`);
agent.destroy();
