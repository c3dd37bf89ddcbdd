// A comment on a line, before it is part of a message.

import { useState } from "react";
import { strings } from "../../strings";
import { onEscape } from "../escape";

interface Props {
  onSave(text: string): void;
  onCancel(): void;
}

export function CommentForm({ onSave, onCancel }: Props) {
  const [text, setText] = useState("");
  return (
    <form
      className="comment-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim() !== "") onSave(text);
      }}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        onEscape(event, onCancel);
      }}
    >
      <textarea className="field-box" aria-label={strings.panel.comment} autoFocus value={text} onChange={(event) => setText(event.target.value)} />
      <div className="dialog-actions">
        <button className="button small" type="submit" disabled={text.trim() === ""}>
          {strings.panel.addComment}
        </button>
        <button className="button small" type="button" onClick={onCancel}>
          {strings.common.cancel}
        </button>
      </div>
    </form>
  );
}
