// Selects the theme of the page.

import { useState } from "react";
import { chooseTheme, storedTheme, THEMES, type Theme } from "../model/theme";

const NAMES: Record<Theme, string> = { system: "System theme", light: "Light", dark: "Dark" };

export function ThemeChoice() {
  const [theme, setTheme] = useState(storedTheme);
  return (
    <select
      className="theme-choice"
      aria-label="Theme"
      value={theme}
      onChange={(event) => {
        const chosen = event.target.value as Theme;
        chooseTheme(chosen);
        setTheme(chosen);
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
