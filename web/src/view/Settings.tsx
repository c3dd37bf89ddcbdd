// The settings of the page in this browser, and the ways out of it.

import { useState, useSyncExternalStore } from "react";
import type { GatewayClient } from "@acp-gateway/client";
import type { Choice } from "../model/choice";
import { applyDensity, DENSITIES, densityChoice } from "../model/density";
import { isKept, keepKey } from "../model/key";
import { applyTheme, themeChoice, THEMES } from "../model/theme";
import { useAbout } from "../model/useAbout";
import { strings } from "../strings";
import { Icon } from "./Icon";
import { NoticesChoice } from "./NoticesChoice";
import { Popover } from "./Popover";

interface Props {
  client: GatewayClient;
  /** Shows the keys of the user. */
  onKeys(): void;
  onForget(): void;
}

export function Settings({ client, onKeys, onForget }: Props) {
  const about = useAbout(client);
  return (
    <Popover button={<Icon name="settings" />} className="icon-button" label={strings.sidebar.settings} name={strings.sidebar.settings} side="right">
      {(close) => (
        <>
          <Select label={strings.sidebar.theme} choice={themeChoice} values={THEMES} names={strings.sidebar.themes} onChange={applyTheme} />
          <Select label={strings.sidebar.density} choice={densityChoice} values={DENSITIES} names={strings.sidebar.densities} onChange={applyDensity} />
          <NoticesChoice />
          <hr className="popover-line" />
          <a className="link-button" href="docs" target="_blank" rel="noopener noreferrer">
            {strings.sidebar.apiDocs}
          </a>
          <button
            className="link-button"
            type="button"
            onClick={() => {
              close();
              onKeys();
            }}
          >
            {strings.keys.open}
          </button>
          <KeepKey />
          <button className="link-button" type="button" onClick={onForget}>
            {strings.sidebar.signOut}
          </button>
          {about && <p className="popover-title">{`${about.name} ${about.version}`}</p>}
        </>
      )}
    </Popover>
  );
}

/** Also for people who came by a link, which keeps the key in its tab only. */
function KeepKey() {
  const [kept, setKept] = useState(isKept);
  return (
    <label className="check settings-check">
      <input
        type="checkbox"
        checked={kept}
        onChange={(event) => {
          keepKey(event.target.checked);
          setKept(isKept());
        }}
      />
      <span>
        {strings.key.keep}
        <small>{strings.key.keepHint}</small>
      </span>
    </label>
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
