// Whether a person is typing. A question that appears meanwhile must neither take the focus nor an answer from the keys.

let lastTyped = 0;

/** The time after a character in which a person still types. */
const PAUSE_MS = 1_500;

export function isEditable(element: Element | null): boolean {
  return element instanceof HTMLTextAreaElement || element instanceof HTMLInputElement || element instanceof HTMLSelectElement;
}

/** Notes each character that is typed into a field. */
export function followTyping(): void {
  const note = (event: KeyboardEvent) => {
    const isText = event.key.length === 1 || event.key === "Backspace";
    if (isText && !event.ctrlKey && !event.metaKey && isEditable(document.activeElement)) lastTyped = performance.now();
  };
  addEventListener("keydown", note, { capture: true });
}

/** A person with a text in the message field, or in any other field, or who typed a moment ago. */
export function isTyping(): boolean {
  return typedJustNow() || (isEditable(document.activeElement) && (!(document.activeElement instanceof HTMLTextAreaElement) || document.activeElement.value !== ""));
}

export function typedJustNow(): boolean {
  return lastTyped > 0 && performance.now() - lastTyped < PAUSE_MS;
}
