// Selects the theme of the page.

import { useSyncExternalStore } from "react";
import { applyTheme, themeChoice, THEMES, type Theme } from "../model/theme";

const NAMES: Record<Theme, string> = { system: "System theme", light: "Light", dark: "Dark" };

export function ThemeChoice() {
  const theme = useSyncExternalStore(themeChoice.subscribe, themeChoice.value);
  return (
    <select
      className="theme-choice"
      aria-label="Theme"
      value={theme}
      onChange={(event) => {
        themeChoice.choose(event.target.value as Theme);
        applyTheme();
      }}
    >
      {THEMES.map((name) => (
        <option key={name} value={name}>
          {NAMES[name]}
        </option>
      ))}
    </select>
  );
}
