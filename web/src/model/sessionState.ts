// The state of a session in the list: an icon, a word and a colour, which never stand alone.

import { known, type SessionSummary } from "@acp-gateway/client";
import { strings } from "../strings";

export interface SessionMark {
  tone: "wait" | "live" | "good" | "bad" | "none";
  /** Null for a session in which nothing happens. */
  word: string | null;
}

export function sessionMark(session: SessionSummary, unread: boolean): SessionMark {
  switch (known(session.state)) {
    case "waiting":
      return { tone: "wait", word: strings.sidebar.waiting };
    case "running":
      return { tone: "live", word: strings.sidebar.working };
    case "closed":
      return { tone: "none", word: strings.sidebar.closed };
    default:
      if (known(session.lastOutcome) === "failed") return { tone: "bad", word: strings.sidebar.failed };
      return unread ? { tone: "good", word: strings.sidebar.finished } : { tone: "none", word: null };
  }
}
