// Common behaviour of all request cards: they get the focus if nobody is typing, and a key press that started before
// does not answer them.

import { useEffect, useState, type RefObject } from "react";
import { focusMessage } from "./focus";
import { isTyping } from "./typing";

/** A button that appears under a moving pointer must not be pressed by it. */
const ARM_MS = 400;

export function useArmed(shown = true): boolean {
  const [armed, setArmed] = useState(false);
  useEffect(() => {
    setArmed(false);
    const timer = setTimeout(() => setArmed(true), ARM_MS);
    return () => clearTimeout(timer);
  }, [shown]);
  return armed;
}

/** The focus moves to the card and not to a button, so that an earlier key press does not answer it. Null: nothing moves. */
export function useCardFocus(card: RefObject<HTMLElement | null> | null): void {
  useEffect(() => {
    if (!card) return;
    if (!isTyping()) card.current?.focus({ preventScroll: true });
    // If the card had the focus when it disappears, the focus moves to the composer.
    return () => {
      if (document.activeElement === null || document.activeElement === document.body) focusMessage();
    };
  }, [card]);
}
