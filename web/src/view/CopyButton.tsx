// Copies a text. The button says for two seconds whether that worked.

import { useEffect, useState } from "react";

const SHOWN_MS = 2_000;

interface Props {
  /** The text, or a function for a text that is made only if it is copied. */
  text: string | (() => string);
  label?: string;
}

export function CopyButton({ text, label = "Copy" }: Props) {
  const [state, setState] = useState<"ready" | "done" | "failed">("ready");
  const words = { ready: label, done: "Copied", failed: "Not permitted" };

  useEffect(() => {
    if (state === "ready") return;
    const timer = setTimeout(() => setState("ready"), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [state]);

  return (
    <button
      className="link-button"
      type="button"
      onClick={() => void copy(typeof text === "string" ? text : text()).then((done) => setState(done ? "done" : "failed"))}
    >
      <span aria-live="polite">{words[state]}</span>
    </button>
  );
}

/** Returns whether the text is in the clipboard. Pages without a secure context have the old command only. */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyWithCommand(text);
  }
}

function copyWithCommand(text: string): boolean {
  const before = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (before instanceof HTMLElement) before.focus();
  return done;
}
