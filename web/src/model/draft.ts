// The draft of a message in a session, kept for this tab so that a reload does not lose it.

import { useEffect, useState, type Dispatch, type SetStateAction } from "react";

const PREFIX = "acp-gateway.draft.";

export function useDraft(sessionId: string): [string, Dispatch<SetStateAction<string>>] {
  const [text, setText] = useState(() => load(sessionId));
  useEffect(() => saveDraft(sessionId, text), [sessionId, text]);
  return [text, setText];
}

function load(sessionId: string): string {
  try {
    return sessionStorage.getItem(PREFIX + sessionId) ?? "";
  } catch {
    return "";
  }
}

/** Keeps the text of a session. */
export function saveDraft(sessionId: string, text: string): void {
  try {
    if (text === "") sessionStorage.removeItem(PREFIX + sessionId);
    else sessionStorage.setItem(PREFIX + sessionId, text);
  } catch {
    // A browser may refuse storage; a draft is a comfort only.
  }
}
