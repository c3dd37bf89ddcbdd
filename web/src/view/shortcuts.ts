// The keyboard shortcuts that work everywhere on the page. Browsers keep Ctrl+N, Ctrl+T and Ctrl+W for themselves.

import { useEffect, useRef } from "react";
import { isEditable } from "./focus";

export interface Shortcuts {
  newSession(): void;
  /** Opens the next session that waits for an answer. */
  nextWaiting(): void;
  /** Opens or closes the panel of the session. */
  panel(): void;
  help(): void;
}

export function useShortcuts(shortcuts: Shortcuts): void {
  const latest = useRef(shortcuts);
  useEffect(() => {
    latest.current = shortcuts;
  });
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const action = actionOf(event, latest.current);
      if (!action) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function actionOf(event: KeyboardEvent, { newSession, nextWaiting, panel, help }: Shortcuts): (() => void) | null {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey) return null;
  // The place of the key: with Alt, some systems write another letter.
  if (event.altKey) return { KeyN: newSession, KeyJ: nextWaiting, KeyP: panel }[event.code] ?? null;
  return event.key === "?" && !isEditable(document.activeElement) ? help : null;
}
