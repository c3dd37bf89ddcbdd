// What all questions of the agent share: they take the focus when nobody is typing, and no press that was on its way answers them.

import { useEffect, useState, type RefObject } from "react";
import { focusMessage } from "./focus";

/** A button that appears under a moving pointer must not be pressed by it. */
const ARM_MS = 400;

export function useArmed(): boolean {
  const [armed, setArmed] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setArmed(true), ARM_MS);
    return () => clearTimeout(timer);
  }, []);
  return armed;
}

/** Focus comes to the card and not to a button, so that a key that was on its way answers nothing. */
export function useCardFocus(card: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    if (!isTyping()) card.current?.focus({ preventScroll: true });
    // When the card goes and takes the focus with it, it goes back to where the next message is written.
    return () => {
      if (document.activeElement === null || document.activeElement === document.body) focusMessage();
    };
  }, [card]);
}

/** Somebody who is in the middle of a sentence keeps the focus. */
function isTyping(): boolean {
  const active = document.activeElement;
  return isEditable(active) && (!(active instanceof HTMLTextAreaElement) || active.value !== "");
}

export function isEditable(element: Element | null): boolean {
  return element instanceof HTMLTextAreaElement || element instanceof HTMLInputElement || element instanceof HTMLSelectElement;
}
