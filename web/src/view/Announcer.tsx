// Announces events to screen readers: a finished turn, and an open question. Never single tokens.

import { useEffect, useRef, useState } from "react";
import { blocksText, openRequests, type SessionLog, type Turn } from "@acp-gateway/client";
import { stopWords } from "../model/words";
import { strings } from "../strings";

export function Announcer({ log, caughtUp }: { log: SessionLog; caughtUp: boolean }) {
  const [words, setWords] = useState("");
  const told = useRef<Set<string> | null>(null);

  useEffect(() => {
    if (!caughtUp) return;
    const now = happenings(log);
    const before = told.current;
    told.current = new Set(now.keys());
    // Events from before the end of the replay are not announced.
    if (before === null) return;
    const fresh = [...now].filter(([key]) => !before.has(key)).map(([, text]) => text);
    if (fresh.length > 0) setWords(fresh.join(" "));
  }, [log, caughtUp]);

  return (
    <div className="hidden" aria-live="polite">
      {words}
    </div>
  );
}

function happenings(log: SessionLog): Map<string, string> {
  const found = new Map<string, string>();
  for (const request of openRequests(log)) {
    found.set(`request ${request.requestId}`, strings.session.asks(request.title || strings.session.aQuestion));
  }
  for (const turn of log.turns) {
    if (turn.promptId && turn.endedAt) found.set(`turn ${turn.promptId}`, endWords(turn));
  }
  return found;
}

function endWords(turn: Turn): string {
  if (turn.status === "failed") return strings.session.turnFailed(turn.problem?.title ?? turn.problem?.code ?? strings.session.unknownReason);
  const last = turn.items.findLast((item) => item.kind === "message");
  const said = last?.kind === "message" ? blocksText(last.blocks).slice(0, 600) : "";
  return `${stopWords(turn.stopReason, turn.cancelCause)}. ${said}`;
}
