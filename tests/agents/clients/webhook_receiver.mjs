// A receiver of webhooks over TLS, for tests: node webhook_receiver.mjs KEY CERTIFICATE PORT SECRET. It verifies each request
// with the stock library and prints one line of JSON for it. Its own port is the first line; PORT 0 selects a free one.
//
// The path decides the answer: `/ok` 204, `/gone` 410, `/redirect` 302 to `/ok`, `/hang` none, and `/fail/N` 503 for the first
// N requests with an id.
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { Webhook } from "standardwebhooks";

const [key, cert, port, secret] = process.argv.slice(2);
const receiver = new Webhook(secret);
const seen = new Map();

function answer(request, response) {
  const [, kind, count] = request.url.split("/");
  const times = (seen.get(request.headers["webhook-id"]) ?? 0) + 1;
  seen.set(request.headers["webhook-id"], times);
  if (kind === "hang") return null;
  if (kind === "gone") return response.writeHead(410).end();
  if (kind === "redirect") return response.writeHead(302, { location: "/ok" }).end();
  if (kind === "fail" && times <= Number(count)) return response.writeHead(503).end();
  return response.writeHead(204).end();
}

const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const body = Buffer.concat(chunks).toString();
    let verified = null;
    try {
      verified = receiver.verify(body, request.headers);
    } catch (error) {
      console.error(error);
    }
    const status = answer(request, response)?.statusCode ?? null;
    console.log(JSON.stringify({ path: request.url, id: request.headers["webhook-id"], status, verified }));
  });
});
server.listen(Number(port), "127.0.0.1", () => console.log(server.address().port));
