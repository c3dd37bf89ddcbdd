// A web server of somebody else, and pages on it.

import { once } from "node:events";
import { createServer } from "node:http";

const PAGE = "<!doctype html><title>a page of somebody else</title>";

/** Serves empty pages on a port of its own. `127.0.0.1` and `localhost` are the same machine as the gateway. */
export class Attacker {
  static async start() {
    const attacker = new Attacker();
    /** The `Referer` of each request. */
    attacker.referrers = [];
    attacker.server = createServer((request, response) => {
      attacker.referrers.push(request.headers.referer);
      response.writeHead(200, { "Content-Type": "text/html" });
      response.end(PAGE);
    });
    attacker.server.listen(0, "127.0.0.1");
    await once(attacker.server, "listening");
    attacker.port = attacker.server.address().port;
    return attacker;
  }

  async end() {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, "close");
  }

  /** A page under this name. `sent` gets each request to the gateway, and `answers` the statuses that the browser shows. */
  async open(browser, host, gateway) {
    const context = await browser.newContext();
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    const { port } = new URL(gateway);
    const named = (request) => `${request.method()} ${new URL(request.url()).pathname}`;
    page.sent = [];
    page.on("request", (request) => new URL(request.url()).port === port && page.sent.push(named(request)));
    page.answers = [];
    page.on("response", (response) => new URL(response.url()).port === port && page.answers.push(`${named(response.request())} ${response.status()}`));
    await page.goto(`http://${host}:${this.port}/`);
    return page;
  }

  /** A page whose name pointed to the attacker when it was loaded, and points to the gateway now. */
  async rebind(browser, host, gateway) {
    const context = await browser.newContext();
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    const address = `http://${host}:${new URL(gateway).port}/`;
    await page.route(address, (route) => route.fulfill({ contentType: "text/html", body: PAGE }), { times: 1 });
    await page.goto(address);
    return page;
  }
}
