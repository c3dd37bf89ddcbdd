// The settings of the page in this browser, and the ways out of it.

import { useSyncExternalStore } from "react";
import type { Choice } from "../model/choice";
import { applyDensity, DENSITIES, densityChoice } from "../model/density";
import { applyTheme, themeChoice, THEMES } from "../model/theme";
import { Icon } from "./Icon";
import { NoticesChoice } from "./NoticesChoice";
import { Popover } from "./Popover";

const THEME_NAMES = { system: "System", light: "Light", dark: "Dark" };
const DENSITY_NAMES = { comfortable: "Comfortable", compact: "Compact" };

export function Settings({ onForget }: { onForget(): void }) {
  return (
    <Popover button={<Icon name="settings" />} className="icon-button" label="Settings" name="Settings" side="right">
      {() => (
        <>
          <Select label="Theme" choice={themeChoice} values={THEMES} names={THEME_NAMES} onChange={applyTheme} />
          <Select label="Density" choice={densityChoice} values={DENSITIES} names={DENSITY_NAMES} onChange={applyDensity} />
          <NoticesChoice />
          <hr className="popover-line" />
          <a className="link-button" href="docs" target="_blank" rel="noopener noreferrer">
            API docs
          </a>
          <button className="link-button" type="button" onClick={onForget}>
            Sign out
          </button>
        </>
      )}
    </Popover>
  );
}

interface SelectProps<T extends string> {
  label: string;
  choice: Choice<T>;
  values: readonly T[];
  names: Record<T, string>;
  onChange(): void;
}

function Select<T extends string>({ label, choice, values, names, onChange }: SelectProps<T>) {
  const value = useSyncExternalStore(choice.subscribe, choice.value);
  return (
    <label className="settings-row">
      {label}
      <select
        value={value}
        onChange={(event) => {
          choice.choose(event.target.value as T);
          onChange();
        }}
      >
        {values.map((name) => (
          <option key={name} value={name}>
            {names[name]}
          </option>
        ))}
      </select>
    </label>
  );
}
