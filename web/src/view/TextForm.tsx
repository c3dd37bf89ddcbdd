// A text of several lines that a person writes or changes in its place. Enter saves it, and Escape leaves it.

import { useState } from "react";
import { strings } from "../strings";
import { onEscape } from "./escape";
import { sendsText } from "./focus";

interface Props {
  className: string;
  /** The name of the field. */
  label: string;
  text: string;
  /** The name of the button. */
  save: string;
  /** Receives the text after each change. */
  onText?(text: string): void;
  onSave(text: string): void;
  onCancel(): void;
}

export function TextForm({ className, label, text: before, save, onText, onSave, onCancel }: Props) {
  const [text, setText] = useState(before);
  const empty = text.trim() === "";
  const change = (written: string) => {
    setText(written);
    onText?.(written);
  };
  return (
    <form
      className={className}
      onSubmit={(event) => {
        event.preventDefault();
        if (!empty) onSave(text);
      }}
      onKeyDown={(event) => {
        if (event.target instanceof HTMLTextAreaElement && sendsText(event)) {
          event.preventDefault();
          if (!empty) onSave(text);
        }
        if (event.key !== "Escape") return;
        // Escape closes the form alone, and not the panel with it.
        event.stopPropagation();
        onEscape(event, onCancel);
      }}
    >
      <textarea className="field-box" dir="auto" aria-label={label} autoFocus rows={3} value={text} onChange={(event) => change(event.target.value)} />
      <div className="dialog-actions">
        <button className="button small" type="submit" disabled={empty}>
          {save}
        </button>
        <button className="button small" type="button" onClick={onCancel}>
          {strings.common.cancel}
        </button>
      </div>
    </form>
  );
}
