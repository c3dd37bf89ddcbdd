// Common behaviour of all request cards. A card never takes the focus: it appears while a person reads, types or presses a key.

import { useEffect, useLayoutEffect, useRef, useState, type FocusEvent, type RefObject } from "react";
import { focusMessage } from "./focus";
import { isTabbing } from "./typing";

/** A button that appears under a moving pointer must not be pressed by it. */
const ARM_MS = 400;

/**
 * Whether the buttons of a card may act. The time counts from the frame that shows them, with which a busy page can be late. It
 * counts again when the card is shown or hidden, so that no button is armed in the moment in which it appears.
 */
export function useArmed(shown = true): boolean {
  const [armedFor, setArmedFor] = useState<boolean | null>(null);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const frame = requestAnimationFrame(() => {
      timer = setTimeout(() => setArmedFor(shown), ARM_MS);
    });
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
      setArmedFor(null);
    };
  }, [shown]);
  return armedFor === shown;
}

/** If the card has the focus when it disappears, the focus moves to the message field. */
export function useFocusAfter(card: RefObject<HTMLElement | null>): void {
  useLayoutEffect(() => {
    const shown = card.current;
    return () => {
      if (shown?.contains(document.activeElement)) focusMessage();
    };
  }, [card]);
}

/**
 * Whether a person has moved to the card with the Tab key, so that digits are for the card. A click on its text, or the return
 * to the window, is no such move.
 */
export function useEntered() {
  const [entered, setEntered] = useState(false);
  const latest = useRef(false);
  const set = (now: boolean) => {
    latest.current = now;
    setEntered(now);
  };
  return {
    entered,
    /** The value before the next rendering. */
    isEntered: () => latest.current,
    props: {
      onFocus: () => isTabbing() && set(true),
      onPointerDown: () => set(false),
      onBlur: (event: FocusEvent<HTMLElement>) => {
        if (document.hasFocus() && !event.currentTarget.contains(event.relatedTarget)) set(false);
      },
    },
  };
}
