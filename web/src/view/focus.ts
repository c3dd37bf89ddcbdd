// Where the keyboard's words go: to a question that waits, else to the message field.

import type { KeyboardEvent } from "react";
import { typedJustNow } from "./typing";

export const MESSAGE_ID = "message";
export const QUESTION_ID = "question";

/** The keyboard of a touch screen covers half of the page. A machine without any pointer has a keyboard too. */
function hasKeyboard(): boolean {
  return !matchMedia("(pointer: coarse)").matches;
}

export function focusMessage(): void {
  if (hasKeyboard()) document.getElementById(MESSAGE_ID)?.focus();
}

/** Whether a key press in a field of several lines sends its text. On a touch screen, Enter begins a line. */
export function sendsText(event: KeyboardEvent): boolean {
  return event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing && hasKeyboard();
}

/** For a session that opens: a person who searches already keeps the focus. */
export function focusMessageUnlessSearching(): void {
  if (document.activeElement?.matches("input[type=search]") !== true) focusMessage();
}

/**
 * After a message or an answer. An open change of a queued message goes on. A fast agent may have asked already: the question keeps
 * the focus. On a touch screen the keyboard goes, so that the page shows the answer.
 */
export function focusNext(): void {
  const question = document.getElementById(QUESTION_ID);
  const edited = document.querySelector(".queue-edit")?.querySelector("textarea");
  if (edited) edited.focus();
  else if (question && !typedJustNow()) question.focus({ preventScroll: true });
  else if (hasKeyboard()) focusMessage();
  else document.getElementById(MESSAGE_ID)?.blur();
}
