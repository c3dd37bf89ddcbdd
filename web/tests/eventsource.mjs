// The browser's own EventSource, with a ticket in its address and nothing else that helps it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, Watch } from "./support/browser.mjs";
import { Gateway } from "./support/gateway.mjs";

let browser;
let gateway;
before(async () => {
  browser = await launch();
  gateway = await Gateway.start();
});
after(async () => {
  await browser?.close();
  await gateway?.end();
});

test("an EventSource with a ticket follows two sessions through a killed gateway", async () => {
  const watch = await Watch.page(browser, gateway.origin, { allowFailedRequests: true });
  const { page } = watch;
  await page.goto(gateway.link);
  const api = new Api(page, new URLSearchParams(new URL(gateway.link).hash.slice(1)).get("key"));
  const sessions = [await api.createSession(), await api.createSession()];
  const { ticket } = await api.call("POST", "tickets", { paths: ["/v1/events"] });
  await follow(page, sessions, ticket);

  for (const session of sessions) await api.call("POST", `sessions/${session}/prompts`, { prompt: "/slow 300" });
  await seen(page, sessions, { type: "session.update", promptId: "p1" });
  await gateway.kill();
  await page.waitForFunction(() => window.followed.errors > 0);
  await gateway.restart();
  await seen(page, sessions, { type: "prompt.failed", promptId: "p1" });
  for (const session of sessions) await api.call("POST", `sessions/${session}/prompts`, { prompt: "/help" });
  await seen(page, sessions, { type: "prompt.completed", promptId: "p2" });

  await gateway.stop();
  await seenMark(page, "shutdown");
  await gateway.restart();
  for (const session of sessions) await api.call("POST", `sessions/${session}/prompts`, { prompt: "/help" });
  await seen(page, sessions, { type: "prompt.completed", promptId: "p3" });

  const { opened, events, empty } = await page.evaluate(() => {
    window.source.close();
    return window.followed;
  });
  assert.equal(empty, 0, "no event is without data");
  // The source reconnected by itself and resumed at its last position without a reset.
  assert.ok(opened >= 3, `opened ${opened} times`);
  assert.equal(events.filter(({ type }) => type === "reset").length, 0);
  const logged = events.filter(({ seq }) => seq !== undefined);
  assertOnceInOrder(logged.map(({ lastEventId }) => lastEventId));
  for (const session of sessions) {
    const followed = logged.filter(({ sessionId }) => sessionId === session);
    const log = await api.call("GET", `sessions/${session}/events?limit=1000`);
    assert.equal(log.more, false);
    const last = followed.at(-1).seq;
    assert.deepEqual(followed.map(comparable), log.events.filter(({ seq }) => seq <= last).map(comparable));
    const ends = followed.filter(({ type }) => ["prompt.completed", "prompt.failed"].includes(type));
    assert.deepEqual(ends.map(({ type, promptId, problem }) => [type, promptId, problem?.code]), [
      ["prompt.failed", "p1", "interrupted"],
      ["prompt.completed", "p2", undefined],
      ["prompt.completed", "p3", undefined],
    ]);
  }
  await watch.close();
});

test("an EventSource of a turn sees its end, and stops at the 204 when it comes back", async () => {
  const watch = await Watch.page(browser, gateway.origin, { allowFailedRequests: true });
  const { page } = watch;
  await page.goto(gateway.link);
  const api = new Api(page, new URLSearchParams(new URL(gateway.link).hash.slice(1)).get("key"));
  const session = await api.createSession();
  const path = `/v1/sessions/${session}/prompts/p1/events`;
  await api.call("POST", `sessions/${session}/prompts`, { prompt: "/slow 2" });
  const { ticket } = await api.call("POST", "tickets", { paths: [path] });
  await listen(page, `${path.slice(1)}?named=false&ticket=${ticket}`);
  await page.waitForFunction(() => window.source.readyState === EventSource.CLOSED);
  const { opened, events, empty } = await page.evaluate(() => window.followed);
  assert.deepEqual([opened, empty], [1, 0]);
  const [completed, end] = events.slice(-2);
  assert.deepEqual([completed.type, end.type, end.reason], ["prompt.completed", "end", "turn_ended"]);
  assert.equal(end.lastEventId, completed.id);
  await watch.close();
});

/** What a program of the page's origin asks of the gateway, with the key. */
class Api {
  constructor(page, key) {
    this.page = page;
    this.key = key;
  }

  async call(method, path, body) {
    const { status, answer } = await this.page.evaluate(
      async ([key, method, path, body]) => {
        const headers = { Authorization: `Bearer ${key}`, Accept: "application/json", "Content-Type": "application/json" };
        const response = await fetch(`v1/${path}`, { method, headers, body: body && JSON.stringify(body) });
        return { status: response.status, answer: await response.json() };
      },
      [this.key, method, path, body],
    );
    assert.ok(status < 300, `${method} ${path}: ${status} ${JSON.stringify(answer)}`);
    return answer;
  }

  async createSession() {
    return (await this.call("POST", "sessions", { agent: "demo" })).sessionId;
  }
}

/** One EventSource for the whole test. It knows only the gateway's events. */
function follow(page, sessions, ticket) {
  const query = new URLSearchParams([...sessions.map((session) => ["session", session]), ["ticket", ticket], ["named", "false"]]);
  return listen(page, `v1/events?${query}`);
}

function listen(page, address) {
  return page.evaluate((address) => {
    window.followed = { opened: 0, errors: 0, events: [], empty: 0 };
    window.source = new EventSource(address);
    window.source.onopen = () => (window.followed.opened += 1);
    window.source.onerror = () => (window.followed.errors += 1);
    window.source.onmessage = ({ data, lastEventId }) => {
      if (data === "") window.followed.empty += 1;
      else window.followed.events.push({ ...JSON.parse(data), lastEventId });
    };
  }, address);
}

/** Waits for an event about the stream. */
async function seenMark(page, type) {
  await page.waitForFunction((type) => window.followed.events.some((event) => event.type === type), type);
}

/** Waits until each of the sessions has an event like this. Fails at once if the source gave up. */
async function seen(page, sessions, like) {
  const closed = await page.waitForFunction(
    ([sessions, like]) => {
      if (window.source.readyState === EventSource.CLOSED) return "closed";
      const matches = (event, session) => event.sessionId === session && Object.entries(like).every(([name, value]) => event[name] === value);
      return sessions.every((session) => window.followed.events.some((event) => matches(event, session))) && "seen";
    },
    [sessions, like],
  );
  assert.equal(await closed.jsonValue(), "seen", `the source gave up before ${like.type}`);
}

/** The ids of the merged stream count the commits of the whole store. */
function assertOnceInOrder(ids) {
  const positions = ids.map((id) => Number(/^[a-z0-9]+-g(\d+)$/.exec(id)?.[1]));
  assert.ok(positions.length > 0);
  assert.deepEqual(positions, [...new Set(positions)].sort((a, b) => a - b));
  assert.equal(new Set(ids.map((id) => id.split("-")[0])).size, 1);
}

/** An event without its ids, which depend on the stream. */
function comparable({ id: _, lastEventId: __, ...event }) {
  return event;
}
