// Where typed text goes. Nothing that arrives takes the focus from a person, and text that no field receives goes to the
// message field.

import { isEditable, MESSAGE_ID, QUESTION_ID } from "./focus";

/** Whether a person writes in a field that is not a part of a question. */
export function isWriting(): boolean {
  return isEditable(document.activeElement) && document.activeElement?.closest(`#${QUESTION_ID}`) == null;
}

/** Whether a key writes a character, or begins one: a dead key, or a key of an input method. */
export function writesText(event: KeyboardEvent): boolean {
  const isChord = (event.ctrlKey || event.altKey || event.metaKey) && !event.getModifierState("AltGraph");
  return !isChord && ([...event.key].length === 1 || event.key === "Dead" || event.key === "Process");
}

/** A text that is typed outside of all fields, in the conversation or on a question, goes to the message field. */
export function followTyping(): void {
  addEventListener("keydown", (event) => {
    // The space bar scrolls and presses buttons. "?" shows the shortcuts.
    if (event.defaultPrevented || event.key === " " || event.key === "?" || !writesText(event)) return;
    // The browser writes the character into the field that has the focus after this event.
    if (isBesideMessage(document.activeElement)) document.getElementById(MESSAGE_ID)?.focus();
  });
}

function isBesideMessage(element: Element | null): boolean {
  if (isEditable(element) || document.querySelector("dialog[open]")) return false;
  return element === null || element === document.body || element.id === "main" || element.closest(".transcript, .requests") !== null;
}

/** Writes a text at the caret of the message field, as if it was typed there. */
export function typeIntoMessage(text: string): void {
  const field = document.getElementById(MESSAGE_ID);
  if (!(field instanceof HTMLTextAreaElement)) return;
  field.focus();
  field.setRangeText(text, field.selectionStart, field.selectionEnd, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

let tabs = false;

/** Notes whether the focus moves by the Tab key. */
export function followTabs(): void {
  addEventListener("keydown", (event) => void (tabs = event.key === "Tab" && !event.ctrlKey && !event.altKey && !event.metaKey), { capture: true });
  for (const end of ["keyup", "pointerdown", "blur"]) addEventListener(end, () => void (tabs = false), { capture: end !== "blur" });
}

/** Whether a person moves the focus now, by the Tab key. */
export function isTabbing(): boolean {
  return tabs;
}
