// A button, and the menu or the small form that it opens. Escape and a press outside close it, and the button gets the focus
// back.

import { useEffect, useRef, useState, type KeyboardEvent, type ReactNode } from "react";

interface Props {
  /** The content of the button. */
  button: ReactNode;
  className?: string;
  /** The name of the button if its content is no text. */
  label?: string;
  /** The name of the box. */
  name: string;
  place?: "above" | "below";
  side?: "left" | "right";
  boxClassName?: string;
  /** Called with a function that closes the box and returns the focus. */
  children(close: () => void): ReactNode;
}

export function Popover({ button, className = "link-button", label, name, place = "below", side = "left", boxClassName = "", children }: Props) {
  const [open, setOpen] = useState(false);
  const outer = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);

  useEffect(() => {
    if (!open) return;
    const press = (event: PointerEvent) => {
      if (!outer.current?.contains(event.target as Node)) setOpen(false);
    };
    // The focus can be outside of the box. Escape closes the box and nothing else.
    const escape = (event: globalThis.KeyboardEvent) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      close();
    };
    addEventListener("pointerdown", press);
    addEventListener("keydown", escape, { capture: true });
    return () => {
      removeEventListener("pointerdown", press);
      removeEventListener("keydown", escape, { capture: true });
    };
  }, [open]);

  function close() {
    setOpen(false);
    opener.current?.focus();
  }

  return (
    <div className="popover" ref={outer}>
      <button className={className} type="button" ref={opener} aria-label={label} title={label} aria-expanded={open} onClick={() => setOpen(!open)}>
        {button}
      </button>
      {open && (
        <div className={`popover-box popover-${place} popover-${side} ${boxClassName}`} role="group" aria-label={name} onKeyDown={moveInMenu}>
          {children(close)}
        </div>
      )}
    </div>
  );
}

/** The arrow keys move between the entries of a menu. Fields keep their own keys. */
function moveInMenu(event: KeyboardEvent<HTMLElement>): void {
  const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  const target = event.target as HTMLElement;
  if (step === 0 || target.matches("input, select, textarea")) return;
  const entries = [...event.currentTarget.querySelectorAll<HTMLElement>("button:not(:disabled), a[href]")];
  const at = entries.indexOf(target);
  if (at === -1) return;
  event.preventDefault();
  entries[(at + step + entries.length) % entries.length]?.focus();
}
