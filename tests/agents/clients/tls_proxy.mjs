// A TLS server in front of a port, for tests: node tls_proxy.mjs KEY CERTIFICATE PORT. Prints its own port.
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { createServer } from "node:tls";

const [key, cert, port] = process.argv.slice(2);
const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (client) => {
  const gateway = connect(Number(port), "127.0.0.1");
  client.on("error", () => gateway.destroy()).on("close", () => gateway.destroy());
  gateway.on("error", () => client.destroy()).on("close", () => client.destroy());
  client.pipe(gateway).pipe(client);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
