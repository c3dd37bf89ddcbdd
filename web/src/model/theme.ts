// The theme that a person has chosen. The style sheet follows the attribute `data-theme`, and the system without it.

import { Choice } from "./choice";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export const themeChoice = new Choice<Theme>("theme", THEMES);

export function applyTheme(): void {
  const { dataset } = document.documentElement;
  const theme = themeChoice.value();
  if (theme === "system") delete dataset["theme"];
  else dataset["theme"] = theme;
}
