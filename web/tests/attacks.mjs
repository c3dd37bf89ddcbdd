// Attacks by pages of other origins in a real browser. Each page is as strong as possible: where it helps the attack, the
// page knows the key or a ticket. Each attack also runs from the gateway's own origin, where it succeeds.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { Attacker } from "./support/attacker.mjs";
import { launch, Watch } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { Gateway } from "./support/gateway.mjs";

const CONFIG = `
[agents.talking]
builtin = "demo"

[agents.locked]
builtin = "demo"
terminal_auth = true
env = { ACP_DEMO_SIGN_IN = "required" }
`;

/** Names that the browser resolves to this machine. */
const EVIL = "evil.example";
const HOSTS = [EVIL, "127.0.0.1"];
/** The delay before a button of a permission works. */
const ARM_MS = 400;

let browser;
let gateway;
let attacker;
let key;
before(async () => {
  // Without the browser's own check for requests to this machine: not every browser has one.
  browser = await launch([`--host-resolver-rules=MAP ${EVIL} 127.0.0.1`, "--disable-features=LocalNetworkAccessChecks"]);
  gateway = await Gateway.start({ config: CONFIG });
  attacker = await Attacker.start();
  key = keyOf(await gateway.adminLink());
});
after(async () => {
  await browser?.close();
  await gateway?.end();
  await attacker?.end();
});

function keyOf(link) {
  return new URLSearchParams(new URL(link).hash.slice(1)).get("key");
}

async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  const response = await fetch(`${gateway.origin}${path}`, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${method} ${path}: ${response.status}`);
  return response.json();
}

async function sessionCount() {
  return (await call("GET", "/v1/sessions")).sessions.length;
}

async function ticketFor(path) {
  return (await call("POST", "/v1/tickets", { paths: [path] })).ticket;
}

let count;
beforeEach(async () => {
  count = await sessionCount();
});

/** A page of the gateway's own origin. */
async function ownPage() {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${gateway.origin}/`);
  return page;
}

test("a page whose name was bound to the gateway again reads and creates nothing, also with the key", async () => {
  const page = await attacker.rebind(browser, EVIL, gateway.origin);
  const tries = (key) => async () => {
    const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
    const found = [];
    for (const path of ["/v1", "/v1/sessions", "/v1/events/stream", "/livez", "/openapi.json", "/docs", "/favicon.svg", "/"]) {
      const response = await fetch(path, { headers });
      // An answer that is not a problem can be a stream without end.
      found.push([path, response.status, response.ok ? "served" : (await response.json()).code]);
    }
    const posted = await fetch("/v1/sessions", { method: "POST", headers, body: '{"agent":"talking"}' });
    found.push(["POST", posted.status, posted.ok ? "served" : (await posted.json()).code]);
    return found;
  };
  const run = (page) => page.evaluate(`(${tries})(${JSON.stringify(key)})()`);
  const found = await run(page);
  assert.equal(new URL(page.url()).hostname, EVIL);
  assert.equal(found.length, 9);
  for (const [path, status, code] of found) assert.deepEqual([path, status, code], [path, 421, "misdirected_request"]);
  const socket = await page.evaluate(openSocket, [`ws://${EVIL}:${new URL(gateway.origin).port}/v1/agents/locked/auth/terminals/x`]);
  assert.equal(socket, "closed");
  assert.equal(await sessionCount(), count);
  await page.context().close();
});

/** Resolves with "open" or "closed". */
function openSocket([address]) {
  return new Promise((resolve) => {
    const socket = new WebSocket(address);
    socket.onopen = () => resolve("open");
    socket.onclose = () => resolve("closed");
  });
}

for (const host of HOSTS) {
  describe(`a page of ${host}, on another port`, () => {
    test("sends no form and no simple request that has an effect", async () => {
      const page = await attacker.open(browser, host, gateway.origin);
      await page.evaluate(sendSimpleRequests, { origin: gateway.origin, body: '{"agent":"talking"}' });
      const posts = page.sent.filter((request) => request === "POST /v1/sessions");
      assert.equal(posts.length, 6, `${page.sent}`);
      const answers = page.answers.filter((answer) => answer.startsWith("POST "));
      assert.ok(answers.length >= 3, `${page.answers}`);
      assert.deepEqual([...new Set(answers)], ["POST /v1/sessions 403"]);
      assert.equal(await sessionCount(), count);
      await page.context().close();
    });

    test("cannot use a key that it knows", async () => {
      const page = await attacker.open(browser, host, gateway.origin);
      const outcomes = await page.evaluate(useKey, { origin: gateway.origin, key });
      assert.deepEqual(outcomes, ["refused", "refused", "refused"]);
      assert.equal(await sessionCount(), count);
      const own = await ownPage();
      assert.deepEqual(await own.evaluate(useKey, { origin: gateway.origin, key, read: true }), [200]);
      await own.context().close();
      await page.context().close();
    });

    test("receives no event of an EventSource, also with a ticket", async () => {
      const session = await call("POST", "/v1/sessions", { agent: "talking" });
      const path = `/v1/sessions/${session.sessionId}/events/stream`;
      const ticket = await ticketFor(path);
      const page = await attacker.open(browser, host, gateway.origin);
      for (const query of ["", "?ticket=x", `?ticket=${ticket}`]) {
        const found = await page.evaluate(listen, `${gateway.origin}${path}${query}`);
        assert.deepEqual(found, { opened: 0, messages: 0, state: 2 }, query);
      }
      const own = await ownPage();
      const found = await own.evaluate(listen, `${gateway.origin}${path}?ticket=${ticket}`);
      assert.ok(found.opened === 1 && found.messages > 0, "the same address on a page of the gateway");
      await own.context().close();
      await page.context().close();
    });

    test("opens no WebSocket, also with a ticket", async () => {
      const { url } = await call("POST", "/v1/agents/locked/auth", { methodId: await terminalMethod() });
      const ticket = await ticketFor(url);
      const address = `${gateway.origin.replace("http", "ws")}${url}?ticket=${ticket}`;
      const page = await attacker.open(browser, host, gateway.origin);
      assert.equal(await page.evaluate(openSocket, [address]), "closed");
      const own = await ownPage();
      assert.equal(await own.evaluate(openSocket, [address]), "open", "the same address on a page of the gateway");
      await own.context().close();
      await page.context().close();
    });

    test("cannot frame the page or its API", async () => {
      const page = await attacker.open(browser, host, gateway.origin);
      for (const [tag, attribute] of [["iframe", "src"], ["object", "data"], ["embed", "src"]]) {
        for (const address of [gateway.link, `${gateway.origin}/docs`, `${gateway.origin}/v1`]) {
          await page.evaluate(frame, { tag, attribute, address });
        }
      }
      await page.waitForFunction(() => window.framed === 9);
      // A frame that was denied shows the browser's own error page.
      for (const child of page.frames().slice(1)) {
        assert.doesNotMatch(child.url(), /^http/, child.url());
        assert.equal(await child.locator("#root, [role=log], input").count().catch(() => 0), 0);
      }
      await page.context().close();
    });
  });
}

async function terminalMethod() {
  const { authMethods } = await call("GET", "/v1/agents/locked/auth");
  return authMethods.find((method) => method.type === "terminal").id;
}

/** Forms of every encoding and requests without CORS. Resolves when the browser has the answers. */
async function sendSimpleRequests({ origin, body }) {
  const address = `${origin}/v1/sessions`;
  // The answer is hidden, so the promise is rejected.
  const send = (options) => fetch(address, { method: "POST", mode: "no-cors", credentials: "include", ...options }).catch(() => undefined);
  for (const type of ["text/plain", "application/x-www-form-urlencoded"]) await send({ headers: { "Content-Type": type }, body });
  await send({ body: new Blob([body]) });
  for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
    const target = document.createElement("iframe");
    target.name = `target-${enctype}`;
    const form = Object.assign(document.createElement("form"), { action: address, method: "post", enctype, target: target.name });
    const field = Object.assign(document.createElement("input"), { name: body.slice(0, -1), value: '":1}' });
    form.append(field);
    document.body.append(target, form);
    // The answer cannot be framed, so the frame shows an error page when the answer has arrived.
    const loaded = new Promise((resolve) => target.addEventListener("load", resolve));
    form.submit();
    await loaded;
  }
  for (const [tag, attribute, path] of [["img", "src", "/v1/sessions"], ["script", "src", "/v1/sessions"], ["link", "href", "/v1/sessions"]]) {
    const node = Object.assign(document.createElement(tag), { rel: "stylesheet", [attribute]: `${origin}${path}` });
    const done = new Promise((resolve) => Object.assign(node, { onerror: () => resolve("error"), onload: () => resolve("load") }));
    document.body.append(node);
    if ((await done) === "load") throw new Error(`${tag} has loaded ${path}`);
  }
}

/** Requests with the key. A request that the browser refuses or whose answer is hidden is "refused". */
function useKey({ origin, key, read }) {
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  const requests = [
    [`${origin}/v1/sessions`, { headers }],
    [`${origin}/v1/sessions`, { method: "POST", headers, body: '{"agent":"talking"}' }],
    [`${origin}/v1/sessions`, { headers, credentials: "include" }],
  ];
  const send = ([address, options]) => fetch(address, options).then((response) => response.status, () => "refused");
  return Promise.all(requests.slice(0, read ? 1 : 3).map(send));
}

/** Listens until the source has an event or gives up. */
function listen(address) {
  return new Promise((resolve) => {
    const found = { opened: 0, messages: 0 };
    const source = new EventSource(address, { withCredentials: true });
    const finish = () => {
      resolve({ ...found, state: source.readyState });
      source.close();
    };
    source.onopen = () => (found.opened += 1);
    source.onerror = () => source.readyState === EventSource.CLOSED && finish();
    for (const kind of ["message", "ready", "session.created"]) {
      source.addEventListener(kind, () => {
        found.messages += 1;
        finish();
      });
    }
  });
}

function frame({ tag, attribute, address }) {
  window.framed ??= 0;
  const node = document.createElement(tag);
  // A frame that is denied loads, and an object or a plug-in that is denied fails.
  const count = () => (window.framed += 1);
  node.addEventListener("load", count, { once: true });
  node.addEventListener("error", count, { once: true });
  node.setAttribute(attribute, address);
  document.body.append(node);
}

test("a page on another port of this machine shares neither cookies nor storage with the page", async () => {
  const context = await browser.newContext();
  const own = await context.newPage();
  await own.goto(gateway.link);
  await own.getByRole("button", { name: /^Agent:/ }).waitFor();
  assert.deepEqual(await context.cookies(), []);
  const neighbour = await context.newPage();
  await neighbour.goto(`http://127.0.0.1:${attacker.port}/`);
  const found = await neighbour.evaluate(async (link) => {
    const opened = window.open(link);
    // The reference is cut when the answer with the page's policy arrives.
    const began = performance.now();
    while (opened && !opened.closed && performance.now() - began < 20_000) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const attempt = (read) => {
      try {
        return String(read());
      } catch (error) {
        return error.name;
      }
    };
    return {
      cookie: document.cookie,
      storage: localStorage.length + sessionStorage.length,
      severed: opened === null || opened.closed,
      document: attempt(() => opened.document.title),
      address: attempt(() => opened.location.href),
    };
  }, gateway.link);
  assert.deepEqual(found.cookie, "");
  assert.equal(found.storage, 0);
  // Cross-Origin-Opener-Policy cuts the reference to the window that the neighbour opened.
  assert.equal(found.severed, true, JSON.stringify(found));
  assert.notEqual(found.address, gateway.link);
  await context.close();
});

test("the address of the page reaches no other site", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(gateway.link);
  await page.getByRole("button", { name: /^Agent:/ }).waitFor();
  assert.equal(page.url().includes("key="), false);
  const seen = attacker.referrers.length;
  await page.evaluate((address) => {
    document.body.append(Object.assign(document.createElement("a"), { id: "out", href: address }));
    document.querySelector("#out").click();
  }, `http://127.0.0.1:${attacker.port}/`);
  await page.waitForURL(`http://127.0.0.1:${attacker.port}/`);
  assert.deepEqual(attacker.referrers.slice(seen, seen + 1), [undefined]);
  assert.equal(await page.evaluate(() => document.referrer), "");
  await context.close();
});

test("the buttons of a permission do nothing in the moment in which they appear", async () => {
  const watch = await Watch.page(browser, gateway.origin);
  const { page } = watch;
  await page.goto(gateway.link);
  const chat = new Chat(page);
  await chat.start(/talking/);
  // Clicks every button of the card in the frame in which it appears, as a click that was meant for something else.
  await page.evaluate(() => {
    window.early = { clicks: 0 };
    new MutationObserver(() => {
      const buttons = [...document.querySelectorAll(".permission button")];
      if (buttons.length === 0) return;
      window.early.shown ??= performance.now();
      if (buttons.some((button) => button.getAttribute("aria-disabled") === "false")) {
        window.early.armed ??= performance.now();
        return;
      }
      for (const button of buttons) {
        button.click();
        window.early.clicks += 1;
      }
      document.dispatchEvent(new KeyboardEvent("keydown", { key: "1", bubbles: true }));
    }).observe(document.body, { subtree: true, childList: true, attributes: true });
  });
  const answers = [];
  page.on("request", (request) => request.url().includes("/permissions/") && answers.push(request.url()));
  await chat.send("/permission");
  await page.waitForFunction(() => window.early.armed !== undefined);
  const early = await page.evaluate(() => window.early);
  assert.ok(early.clicks > 0);
  assert.ok(early.armed - early.shown >= ARM_MS - 20, `armed after ${early.armed - early.shown} ms`);
  assert.deepEqual(answers, []);
  assert.equal(await chat.permission.count(), 1);
  // A digit answers only on the card.
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("3");
  await chat.ended("Finished");
  assert.equal(answers.length, 1);
  await watch.close();
});

test("the buttons of a permission that was hidden do nothing in the moment in which they appear again", async () => {
  const watch = await Watch.page(browser, gateway.origin, { viewport: { width: 390, height: 844 } });
  const { page } = watch;
  await page.goto(gateway.link);
  const chat = new Chat(page);
  await chat.start(/talking/);
  await chat.send("/permission");
  // On a phone, the card is hidden while a person writes.
  await chat.message.focus();
  const toggle = page.locator('.requests-toggle[aria-expanded="false"]');
  await toggle.waitFor();
  await page.waitForTimeout(2 * ARM_MS);
  await page.evaluate(() => {
    window.early = {};
    new MutationObserver(() => {
      const button = document.querySelector(".permission button");
      if (button === null) return;
      if (button.checkVisibility()) window.early.shown ??= { at: performance.now(), disabled: button.getAttribute("aria-disabled") };
      if (button.getAttribute("aria-disabled") === "false") window.early.armed ??= performance.now();
    }).observe(document.body, { subtree: true, childList: true, attributes: true });
  });
  await toggle.click();
  await page.waitForFunction(() => window.early.armed !== undefined);
  const early = await page.evaluate(() => window.early);
  assert.equal(early.shown.disabled, "true");
  assert.ok(early.armed - early.shown.at >= ARM_MS - 20, JSON.stringify(early));
  await chat.permission.getByRole("button", { name: "Allow once" }).click();
  await chat.ended("Finished");
  await watch.close();
});
