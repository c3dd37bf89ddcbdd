// A modal dialog. It is closed while it is in the page, so that it returns the focus.

import { useId, useLayoutEffect, useRef, type ReactNode } from "react";

interface Props {
  title: string;
  className?: string;
  onClose(): void;
  children: ReactNode;
}

export function Dialog({ title, className = "", onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);
  return (
    <dialog
      className={`gate-card dialog ${className}`}
      ref={dialog}
      aria-labelledby={titleId}
      // Escape closes the dialog and nothing behind it.
      onKeyDown={(event) => event.stopPropagation()}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <h1 id={titleId}>{title}</h1>
      {children}
    </dialog>
  );
}
