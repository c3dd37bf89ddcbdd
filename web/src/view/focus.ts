// Where the keyboard's words go: to a question that waits, else to the message field.

import { typedJustNow } from "./typing";

export const MESSAGE_ID = "message";
export const QUESTION_ID = "question";

/** Only where a keyboard is at hand: on a touch screen it would cover half of the page. */
export function focusMessage(): void {
  if (matchMedia("(hover: hover)").matches) document.getElementById(MESSAGE_ID)?.focus();
}

/** For a session that opens: a person who searches already keeps the focus. */
export function focusMessageUnlessSearching(): void {
  if (document.activeElement?.matches("input[type=search]") !== true) focusMessage();
}

/** A fast agent may send a request before the gateway's response to the prompt. The request keeps the required data. */
export function focusNext(): void {
  const question = document.getElementById(QUESTION_ID);
  if (question && !typedJustNow()) question.focus({ preventScroll: true });
  else focusMessage();
}
