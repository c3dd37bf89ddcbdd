// The focus of the message field. What arrives later than an action of a person moves the focus only if the person has not moved
// on meanwhile.

import type { KeyboardEvent } from "react";

export const MESSAGE_ID = "message";
export const QUESTION_ID = "question";

export function isEditable(element: Element | null): boolean {
  return element instanceof HTMLTextAreaElement || element instanceof HTMLInputElement || element instanceof HTMLSelectElement;
}

/** The keyboard of a touch screen covers half of the page. A machine without any pointer has a keyboard too. */
function hasKeyboard(): boolean {
  return !matchMedia("(pointer: coarse)").matches;
}

/** After an action of a person that leads to the message field. */
export function focusMessage(): void {
  if (hasKeyboard()) document.getElementById(MESSAGE_ID)?.focus();
}

/** Whether a key press in a field of several lines sends its text. On a touch screen, Enter begins a line. */
export function sendsText(event: KeyboardEvent): boolean {
  return event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing && hasKeyboard();
}

/** Whether no other field, menu or question has the focus. */
function isFree(): boolean {
  const focused = document.activeElement;
  if (focused === null || focused === document.body || focused.id === MESSAGE_ID) return true;
  return !isEditable(focused) && focused.closest(".popover-box, dialog, .requests") === null;
}

/** After a response, or when a session opens. A person who writes in another field goes on there. */
export function focusMessageIfFree(): void {
  if (isFree()) focusMessage();
}

/** After a message or a stop. On a touch screen the keyboard goes, so that the page shows the answer. */
export function focusNext(): void {
  if (!isFree()) return;
  if (hasKeyboard()) focusMessage();
  else document.getElementById(MESSAGE_ID)?.blur();
}
