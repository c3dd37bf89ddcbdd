// The question before a link replaces the key in this browser. Anyone can send a link, and the page would then work
// with the key of its author.

import { useEffect, useRef } from "react";

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
      <h1 id="replace-key-title">Use the key of this link?</h1>
      <p id="replace-key-text">
        This browser already has another key. With the key of the link you work as its principal, and its owner can see your sessions. Replace your key only if you
        trust the sender of the link.
      </p>
      <div className="dialog-actions">
        <button className="button primary" type="button" ref={keep} onClick={onKeep}>
          Keep my key
        </button>
        <button className="button" type="button" onClick={onReplace}>
          Replace the key
        </button>
      </div>
    </dialog>
  );
}
