// The search of the list. Ctrl+K opens it from everywhere, and the arrow keys move between the field and the sessions.

import { useEffect, useRef, type KeyboardEvent } from "react";
import { flushSync } from "react-dom";
import { strings } from "../strings";
import { focusMessage } from "./focus";
import { Icon } from "./Icon";

interface Props {
  search: string;
  onSearch(search: string): void;
  /** Called before the field gets the focus, because the list can be hidden. */
  onOpen(): void;
}

export function SessionSearch({ search, onSearch, onOpen }: Props) {
  const field = useRef<HTMLInputElement>(null);

  useEffect(() => {
    const press = (event: globalThis.KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
      event.preventDefault();
      // Rendered at once, so that the next key arrives in the field.
      flushSync(onOpen);
      field.current?.focus();
      field.current?.select();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [onOpen]);

  function press(event: KeyboardEvent) {
    if (event.key === "Escape") {
      // It does not stop the agent. With an empty field, it leaves the list.
      event.preventDefault();
      if (search === "") return focusMessage();
      event.stopPropagation();
      onSearch("");
    } else if (event.key === "Enter") {
      field.current?.blur();
      links()[0]?.click();
    } else {
      moveFocus(event);
    }
  }

  return (
    <div className="session-search-place">
      <Icon name="search" />
      <input
        className="session-search"
        ref={field}
        type="search"
        aria-label={strings.sidebar.searchName}
        aria-keyshortcuts="Control+K"
        placeholder={strings.sidebar.search}
        value={search}
        onChange={(event) => onSearch(event.target.value)}
        onKeyDown={press}
      />
      <kbd aria-hidden="true">Ctrl K</kbd>
    </div>
  );
}

function links(): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>("#sidebar .session-link")];
}

/** Moves the focus by one session with the arrow keys. The field is above the first session. */
export function moveFocus(event: KeyboardEvent): void {
  const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  const places = [document.querySelector<HTMLElement>("#sidebar .session-search"), ...links()];
  const at = places.indexOf(document.activeElement as HTMLElement);
  if (step === 0 || at === -1) return;
  event.preventDefault();
  places[at + step]?.focus();
}
