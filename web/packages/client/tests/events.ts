// Builds events of a log as the gateway writes them, and reads the resulting state.

import { EMPTY, foldAll, type Item, type LogEvent, type Raw, type SessionLog, type Turn } from "@acp-gateway/client";

export class Script {
  readonly events: LogEvent[] = [];
  readonly #epoch: string;

  constructor(epoch = "k3") {
    this.#epoch = epoch;
  }

  add(type: string, members: Raw = {}, promptId?: string): this {
    const seq = this.events.length + 1;
    const time = new Date(Date.UTC(2026, 10, 21, 22, 0, seq)).toISOString();
    this.events.push({ id: `${this.#epoch}-${seq}`, seq, type, sessionId: "s", time, ...(promptId ? { promptId } : {}), ...members });
    return this;
  }

  update(promptId: string | undefined, sessionUpdate: string, members: Raw = {}): this {
    return this.add("session.update", { update: { sessionUpdate, ...members } }, promptId);
  }

  say(promptId: string, text: string, messageId?: string): this {
    return this.update(promptId, "agent_message_chunk", { content: { type: "text", text }, ...(messageId ? { messageId } : {}) });
  }
}

export function startedScript(): Script {
  return new Script()
    .add("session.created", { session: { sessionId: "s", agent: "demo", title: null, cwd: "/w", state: "idle" } })
    .add("session.attached", {
      by: "new",
      context: "kept",
      result: { modes: { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask" }, { id: "act", name: "Act" }] } },
    })
    .add("prompt.started", { prompt: [{ type: "text", text: "hi there" }], by: "alice" }, "p1");
}

export function played(script: Script): SessionLog {
  return foldAll(EMPTY, script.events);
}

export function turn(log: SessionLog, index = 0): Turn {
  const found = log.turns.at(index);
  if (!found) throw new Error(`no turn ${index}`);
  return found;
}

type OfKind<I, K> = I extends { kind: infer Kinds } ? (K extends Kinds ? I : never) : never;

export function item<K extends Item["kind"]>(log: SessionLog, kind: K, index = 0): OfKind<Item, K> {
  const found = log.turns.flatMap((each) => each.items).filter((each) => each.kind === kind)[index];
  if (!found) throw new Error(`no ${kind} ${index}`);
  return found as OfKind<Item, K>;
}
