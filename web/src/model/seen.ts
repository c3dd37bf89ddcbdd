// The activity of each session that a person has seen in this browser. A session with newer activity is unread.

import { known, type SessionSummary as Session } from "@acp-gateway/client";
import { record, text } from "@acp-gateway/client/read";

const NAME = "acp-gateway.seen";
/** The time of an event and the time of the activity in the list differ by milliseconds. */
const SAME_MS = 1_000;
/** The sessions that are kept. The browser forgets the others, which then count as seen. */
const MAX_SESSIONS = 500;

interface Stored {
  /** Activity before this time counts as seen. */
  since: string;
  /** The times of the last seen activity, the oldest entry first. */
  sessions: Record<string, string>;
}

export class Seen {
  #stored: Stored | null = load();
  readonly #listeners = new Set<() => void>();

  readonly stored = (): Stored | null => this.#stored;

  readonly subscribe = (listener: () => void): (() => void) => {
    const other = (event: StorageEvent) => {
      if (event.key !== NAME) return;
      this.#stored = load();
      listener();
    };
    this.#listeners.add(listener);
    addEventListener("storage", other);
    return () => {
      this.#listeners.delete(listener);
      removeEventListener("storage", other);
    };
  };

  /** Until when the activity of a session counts as seen. Null before the first list. */
  until(sessionId: string): string | null {
    if (!this.#stored) return null;
    return Object.hasOwn(this.#stored.sessions, sessionId) ? this.#stored.sessions[sessionId]! : this.#stored.since;
  }

  /** The first list of a browser counts as seen. */
  begin(sessions: readonly Session[]): void {
    if (this.#stored) return;
    const times = sessions.map((session) => session.lastActivityAt).sort();
    this.#stored = { since: times.at(-1) ?? "", sessions: {} };
  }

  mark(sessionId: string, time: string): void {
    const until = this.until(sessionId);
    if (!this.#stored || until === null || until >= time) return;
    const { [sessionId]: _, ...others } = this.#stored.sessions;
    const entries = [...Object.entries(others), [sessionId, time] as const].slice(-MAX_SESSIONS);
    this.#stored = { ...this.#stored, sessions: Object.fromEntries(entries) };
    save(this.#stored);
    this.#listeners.forEach((listener) => listener());
  }

  /** A session whose turn runs is unread when the turn has ended or asks something. */
  isUnread(session: Session): boolean {
    const until = this.until(session.sessionId);
    return until !== null && known(session.state) !== "running" && Date.parse(session.lastActivityAt) > Date.parse(until) + SAME_MS;
  }
}

function load(): Stored | null {
  try {
    const raw = record(JSON.parse(localStorage.getItem(NAME) ?? "null"));
    const since = text(raw?.["since"]);
    const sessions = Object.entries(record(raw?.["sessions"]) ?? {}).filter((entry): entry is [string, string] => typeof entry[1] === "string");
    return since === null ? null : { since, sessions: Object.fromEntries(sessions) };
  } catch {
    return null;
  }
}

function save(stored: Stored): void {
  try {
    localStorage.setItem(NAME, JSON.stringify(stored));
  } catch {
    // Without storage, the page remembers until it is closed.
  }
}

export const seen = new Seen();
