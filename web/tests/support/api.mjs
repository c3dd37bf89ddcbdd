// The REST API with the key of the page, for what a test does beside the page.

import assert from "node:assert/strict";

const ANSWER_MS = 30_000;

export class Api {
  constructor(link) {
    this.origin = new URL(link).origin;
    this.key = new URLSearchParams(new URL(link).hash.slice(1)).get("key");
  }

  async call(method, path, body, headers = {}) {
    const response = await fetch(`${this.origin}/v1/${path}`, {
      method,
      headers: { Authorization: `Bearer ${this.key}`, ...(body ? { "Content-Type": "application/json" } : {}), ...headers },
      signal: AbortSignal.timeout(ANSWER_MS),
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const answer = await response.text();
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${answer.slice(0, 500)}`);
    return answer === "" ? undefined : JSON.parse(answer);
  }

  async session(agent, members = {}) {
    return (await this.call("POST", "sessions", { agent, ...members })).sessionId;
  }

  /** Sends a prompt of these texts, and returns before its turn ends. */
  async prompt(session, ...texts) {
    const prompt = texts.map((text) => ({ type: "text", text }));
    return (await this.call("POST", `sessions/${session}/prompts`, { prompt, queue: true })).promptId;
  }

  /** Waits for an open request of the agent that is not `before`, and returns its id, or null after the end of `turn`. */
  async request(session, before = null, turn = null) {
    const deadline = Date.now() + ANSWER_MS;
    while (Date.now() < deadline) {
      const { requests } = await this.call("GET", `sessions/${session}/requests`);
      const found = requests.find(({ requestId }) => requestId !== before);
      if (found) return found.requestId;
      if (turn && (await this.call("GET", `sessions/${session}/prompts/${turn}`)).status === "completed") return null;
    }
    throw new Error("the agent asks nothing");
  }

  answer(session, request, kind, body) {
    return this.call("POST", `sessions/${session}/${kind}/${encodeURIComponent(request)}`, body);
  }
}
