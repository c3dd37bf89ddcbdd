// The panel beside the conversation: which tab is open, if any.

import { Choice } from "./choice";

export const TABS = ["plan", "changes", "files", "terminals", "events"] as const;
export type Tab = (typeof TABS)[number];

export const panelChoice = new Choice<"closed" | Tab>("panel", ["closed", ...TABS]);

/** Where the panel covers the conversation, it does not open by itself. */
export function closeCoveringPanel(): void {
  if (matchMedia("(max-width: 1100px)").matches) panelChoice.choose("closed");
}

/** The tab that opens next. */
let last: Tab = "plan";

export function openPanel(tab: Tab): void {
  last = tab;
  panelChoice.choose(tab);
}

export function togglePanel(): void {
  const open = panelChoice.value();
  if (open === "closed") return openPanel(last);
  last = open;
  panelChoice.choose("closed");
}
