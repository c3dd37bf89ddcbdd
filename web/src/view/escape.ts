// The Escape key closes the innermost thing that is open, and only when nothing is open does it stop the agent.

import type { KeyboardEvent } from "react";

export function onEscape(event: KeyboardEvent, close: () => void): void {
  if (event.key !== "Escape") return;
  event.preventDefault();
  close();
}
