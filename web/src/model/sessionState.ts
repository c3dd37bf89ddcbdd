// The state of a session in the list: an icon, a word and a colour, which never stand alone.

import type { SessionSummary } from "@acp-gateway/client";

export interface SessionMark {
  tone: "wait" | "live" | "good" | "bad" | "none";
  /** Null for a session in which nothing happens. */
  word: string | null;
}

export function sessionMark(session: SessionSummary, unread: boolean): SessionMark {
  switch (session.state) {
    case "waiting":
      return { tone: "wait", word: "Needs an answer" };
    case "running":
      return { tone: "live", word: "Working" };
    case "closed":
      return { tone: "none", word: "Closed" };
    default:
      if (session.lastOutcome === "failed") return { tone: "bad", word: "Failed" };
      return unread ? { tone: "good", word: "Finished" } : { tone: "none", word: null };
  }
}
