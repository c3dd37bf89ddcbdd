import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ApiProblem, eventsOf, GatewayClient, type LogEvent, Unreachable } from "@acp-gateway/client";
import text from "../../../../openapi/openapi.json?raw";

interface Operation {
  operationId: string;
  security?: { key?: string[] }[];
  parameters?: { name: string; in: string }[];
}
const { paths } = JSON.parse(text) as { paths: Record<string, Record<string, Operation>> };

/** Operations for keys of a page that the client does not have: for operators, and a WebSocket that has its own method. */
const OTHERS = ["create_broadcast", "open_terminal", "prompt_events_stream"];
/** The client has only those operations of administrators that the chat page uses. */
const ADMIN = [
  ...["get_audit", "get_diagnostics", "list_deliveries", "list_installable_agents", "list_members", "list_webhooks"],
  ...["sign_in", "sign_out"],
];

const sent: Request[] = [];
let answer: () => Response | Promise<Response>;
beforeEach(() => {
  sent.length = 0;
  answer = () => Response.json({});
  vi.stubGlobal("fetch", async (input: URL, init: RequestInit) => {
    sent.push(new Request(input, init));
    init.signal?.throwIfAborted();
    return answer();
  });
});
afterEach(() => vi.unstubAllGlobals());

const client = new GatewayClient({ url: "https://gateway.example/sub", key: "acpg_1" });

/** The operation of the document, and the parameters of the request that it does not have. */
function operationOf(request: Request): { id: string; unknown: string[] } {
  const { pathname, searchParams } = new URL(request.url);
  const path = pathname.replace(/^\/sub/, "");
  const fits = (template: string) => new RegExp(`^${template.replace(/\{path\}/, ".+").replace(/\{\w+\}/g, "[^/]+")}$`).test(path);
  const template = Object.keys(paths).filter(fits).sort((a, b) => a.split("{").length - b.split("{").length)[0];
  const operation = template === undefined ? undefined : paths[template]![request.method.toLowerCase()];
  if (!operation) throw new Error(`the document has no ${request.method} ${path}`);
  const known = (operation.parameters ?? []).map(({ name }) => name);
  const extra = ["follow", "named"].filter((name) => searchParams.get(name) !== null && known.includes("Last-Event-ID"));
  const names = [...searchParams.keys()].map((name) => (name.startsWith("metadata.") ? "metadata" : name));
  return { id: operation.operationId, unknown: names.filter((name) => ![...known, ...extra].includes(name)) };
}

const page = { cursor: "c", limit: 2 };
const filter = { agent: "a", state: "idle", cwd: "/w", metadata: { user: 42 } };

test("each route that a page needs is a method, with the parameters of the document", async () => {
  const stop = new AbortController().signal;
  const once = { idempotencyKey: "k", signal: stop };
  await client.about();
  await client.agents();
  await client.agent("a");
  await client.agentProcesses("a");
  await client.agentSessions("a", { cursor: "c", cwd: "/w" });
  await client.installableAgents();
  await client.diagnostics();
  await client.diagnosticsText();
  await client.keys(page);
  await client.createKey({ name: "ci", scopes: ["read"] });
  await client.rotateKey("k");
  await client.revokeKey("k");
  await client.fleet();
  await client.webhooks();
  await client.webhookDeliveries(page);
  await client.audit({ after: "tail", limit: 2, types: ["key."] });
  await client.signInState("a");
  await client.signIn("a", "m");
  await client.signOut("a");
  await client.folders("/w", page);
  await client.sessions({ ...filter, ...page, search: "x", tasks: true, shared: true });
  await client.createSession({ agent: "a", prompt: "Hello", attachments: [{ path: "x" }], modeId: "m", config: { o: true } }, once);
  await client.closeSessions(filter, page);
  await client.deleteSessions(filter, page);
  await client.tasks({ agent: "a", status: "queued", parent: "p", ...page });
  await client.task("t", { waitSeconds: 1 });
  await client.createTask({ agent: "a", prompt: "Hello" }, { ...once, waitSeconds: 1 });
  await client.cancelTask("t");
  await client.ticket(["/v1/events/stream"]);
  await client.mergedEvents([["s", "k-1"]], { lastEventId: null, signal: stop });
  await client.session("s");
  await client.renameSession("s", "T");
  await client.deleteSession("s");
  await client.attach("s");
  await client.beginConversation("s");
  await client.close("s");
  await client.fork("s", once);
  await client.grants("s");
  await client.grant("s", "user:bob@example.org", "prompt");
  await client.revokeGrant("s", "tenant");
  await client.prompt("s", "Hello", { ...once, waitSeconds: 1 });
  await client.promptStream("s", { prompt: "Hello", attachments: [{ path: "x" }] }, once);
  await client.prompts("s", page);
  await client.promptState("s", "p1", { waitSeconds: 1 });
  await client.changePrompt("s", "p1", { prompt: "Hello", before: null });
  await client.cancel("s");
  await client.cancelPrompt("s", "p1");
  await client.cancelToolCall("s", "t");
  await client.requests("s");
  await client.answerPermission("s", "r", { optionId: "o" });
  await client.answerElicitation("s", "r", { action: "decline" });
  await client.answerRequest("s", "r", { result: {} });
  await client.setMode("s", "m");
  await client.setConfig("s", "o", true);
  await client.rpc("s", { method: "x" });
  await client.transcript("s", { before: "p9", limit: 2 });
  await client.transcriptMarkdown("s", { before: "p9", limit: 2 });
  await client.events("s", { lastEventId: "k-1", follow: false, signal: stop });
  await client.eventPage("s", { after: "k-1", limit: 2, types: ["prompt."] }, { waitSeconds: 1 });
  await client.promptEventPage("s", "p1", { after: "k-1", limit: 2 }, { waitSeconds: 1 });
  await client.files("s", { path: "d", match: "x", ...page });
  await client.readFile("s", "d/a b.txt", { range: "bytes=0-1" });
  await client.writeFile("s", "/w/a", "x", { create: true });
  await client.deleteFile("s", "a", { ifMatch: '"e"' });
  await client.changes("s");
  await client.change("s", "d/a b.txt");
  await client.revertChange("s", "a", null);
  await client.terminals("s", page);
  await client.terminal("s", "t1");
  await client.killTerminal("s", "t1");
  await client.cancelAgentTerminal("s", "t1");
  await client.stderr("s");

  const used = sent.map(operationOf);
  expect(used.filter(({ unknown }) => unknown.length > 0)).toEqual([]);
  const scopeOf = (operation: Operation) => operation.security?.[0]?.key?.[0];
  const wanted = Object.values(paths).flatMap((path) => Object.values(path)).filter((operation) => {
    const scope = scopeOf(operation);
    if (operation.operationId === undefined || operation.security?.[0]?.key === undefined) return false;
    return scope === "admin" || scope === "fleet" || scope === "metrics" ? ADMIN.includes(operation.operationId) : !OTHERS.includes(operation.operationId);
  });
  const missing = wanted.map(({ operationId }) => operationId).filter((id) => !used.some((each) => each.id === id));
  // Their paths are only in a ticket and in an address.
  expect(missing.sort()).toEqual(["all_events_stream", "session_events_stream"]);
  expect(sent.every((request) => request.headers.get("authorization") === "Bearer acpg_1")).toBe(true);
});

test("an idempotency key, a wait and a condition are headers", async () => {
  await client.createTask({ agent: "a", prompt: "Hello" }, { idempotencyKey: "k", waitSeconds: 5 });
  await client.deleteFile("s", "a", { ifMatch: '"e"' });
  await client.writeFile("s", "/w/ä b", new Uint8Array([1, 2]), { create: true });
  const header = (name: string) => sent.map((request) => request.headers.get(name));
  expect(header("idempotency-key")).toEqual(["k", null, null]);
  expect(header("prefer")).toEqual(["wait=5", null, null]);
  expect(header("if-match")).toEqual([null, '"e"', null]);
  expect(header("if-none-match")).toEqual([null, null, "*"]);
  expect(sent[2]!.url).toBe("https://gateway.example/sub/v1/sessions/s/files/%2Fw/%C3%A4%20b");
  expect(new Uint8Array(await sent[2]!.arrayBuffer())).toEqual(new Uint8Array([1, 2]));
});

test("the address for an EventSource has a ticket and not the key", async () => {
  answer = () => Response.json({ ticket: "acpt_1" });
  const one = await client.sessionEventsUrl("s", { after: "k-3" });
  expect(one).toBe("https://gateway.example/sub/v1/sessions/s/events/stream?after=k-3&named=false&ticket=acpt_1");
  const all = await client.allEventsUrl({ sessions: ["a", "b@k-1"], types: ["prompt.", "request."] });
  expect(new URL(all).searchParams.getAll("session")).toEqual(["a", "b@k-1"]);
  expect(new URL(all).searchParams.get("types")).toBe("prompt.,request.");
  // The gateway does not know the folder that a proxy puts before its paths.
  expect(await sent[0]!.json()).toEqual({ paths: ["/v1/sessions/s/events/stream"] });
});

test("a refusal, a lost connection and an abort are different errors", async () => {
  answer = () => Response.json({ code: "pool_full", detail: "all are busy" }, { status: 503, headers: { "Retry-After": "3" } });
  await expect(client.attach("s")).rejects.toMatchObject({ status: 503, problem: { code: "pool_full", retryAfterSeconds: 3 } });
  answer = () => new Response("<html>", { status: 502 });
  await expect(client.attach("s")).rejects.toSatisfy((error) => error instanceof ApiProblem && error.problem.code === "http_502");
  answer = () => Promise.reject(new TypeError("failed to fetch"));
  await expect(client.attach("s")).rejects.toBeInstanceOf(Unreachable);
  const stop = new AbortController();
  stop.abort(new Error("enough"));
  await expect(client.attach("s", { signal: stop.signal })).rejects.toThrow("enough");
  const cut = new ReadableStream({ pull: (controller) => controller.error(new TypeError("network")) });
  answer = () => new Response(cut);
  await expect(client.attach("s")).rejects.toBeInstanceOf(Unreachable);
});

test("only a page of another origin reads that the gateway may reject it, until the gateway has answered", async () => {
  const failing = async (page: string | undefined, client: GatewayClient) => {
    vi.stubGlobal("location", page && { origin: page });
    answer = () => Promise.reject(new TypeError("failed to fetch"));
    return client.attach("s").catch((error: Error) => error.message);
  };
  const fresh = () => new GatewayClient({ url: "https://gateway.example/sub", key: "acpg_1" });
  const plain = "The gateway cannot be reached.";
  expect(await failing("https://app.example", fresh())).toBe(`${plain} If it runs, it may reject pages of https://app.example: add this origin to \`auth.allowed_origins\` in its configuration.`);
  expect(await failing("https://gateway.example", fresh())).toBe(plain);
  expect(await failing(undefined, fresh())).toBe(plain);
  const known = fresh();
  answer = () => Response.json({});
  await known.attach("s");
  expect(await failing("https://app.example", known)).toBe(plain);
});

test("all events are read page by page", async () => {
  const pages = [{ events: [{ type: "a" }], lastEventId: "k-1", more: true }, { events: [{ type: "b" }], lastEventId: "k-2", more: false }];
  answer = () => Response.json(pages[sent.length - 1]);
  expect((await client.allEvents("s")).map(({ type }) => type)).toEqual(["a", "b"]);
  expect(sent.map((request) => new URL(request.url).searchParams.get("after"))).toEqual([null, "k-1"]);
});

test("the events of a response are read to its end, split at any byte", async () => {
  const bytes = new TextEncoder().encode('retry: 10\nid: k-1\ndata: {"type":"ä"}\n\n:\ndata: no event\n\ndata: {"type":"end"}\n\n');
  const body = new ReadableStream({
    start: (controller) => {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
      controller.close();
    },
  });
  const events: LogEvent[] = [];
  for await (const event of eventsOf(new Response(body))) events.push(event);
  expect(events.map(({ type }) => type)).toEqual(["ä", "end"]);
});
