// The menu of a session: its link, and its conversation as a file.

import { useEffect, useRef, useState } from "react";
import { fileName, toMarkdown } from "../model/exported";
import type { SessionLog } from "../model/state";
import { CopyButton } from "./CopyButton";
import { onEscape } from "./escape";
import { Icon } from "./Icon";

export function SessionMenu({ log, title }: { log: SessionLog; title: string }) {
  const [open, setOpen] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);

  // A press outside closes the menu.
  useEffect(() => {
    if (!open) return;
    const press = (event: PointerEvent) => {
      if (!place.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("pointerdown", press);
    return () => removeEventListener("pointerdown", press);
  }, [open]);

  function close() {
    setOpen(false);
    button.current?.focus();
  }

  return (
    <div className="session-menu" ref={place} onKeyDown={(event) => open && onEscape(event, close)}>
      <button className="icon-button" type="button" ref={button} aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name="more" />
        <span className="hidden">More about this session</span>
      </button>
      {open && (
        <div className="session-menu-items" role="group" aria-label="This session">
          <CopyButton text={location.href} label="Copy the link" />
          <button
            className="link-button"
            type="button"
            onClick={() => {
              download(fileName(title), toMarkdown(log, title));
              close();
            }}
          >
            Download as Markdown
          </button>
        </div>
      )}
    </div>
  );
}

function download(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "text/markdown" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads the text after this function.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
