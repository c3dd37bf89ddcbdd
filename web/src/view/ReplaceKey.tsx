// The question before a link replaces the key in this browser. Anyone can send a link, and the page would then work
// with the key of its author.

import { useEffect, useRef } from "react";
import { strings } from "../strings";

interface Props {
  onReplace(): void;
  onKeep(): void;
}

export function ReplaceKey({ onReplace, onKeep }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const keep = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    keep.current?.focus();
    return () => shown?.close();
  }, []);
  return (
    <dialog
      className="gate-card dialog"
      ref={dialog}
      aria-labelledby="replace-key-title"
      aria-describedby="replace-key-text"
      onCancel={(event) => {
        event.preventDefault();
        onKeep();
      }}
    >
      <h1 id="replace-key-title">{strings.key.replaceTitle}</h1>
      <p id="replace-key-text">{strings.key.replaceText}</p>
      <div className="dialog-actions">
        <button className="button primary" type="button" ref={keep} onClick={onKeep}>
          {strings.key.keepMine}
        </button>
        <button className="button" type="button" onClick={onReplace}>
          {strings.key.replace}
        </button>
      </div>
    </dialog>
  );
}
