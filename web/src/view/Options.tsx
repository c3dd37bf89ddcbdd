// The session's mode and the agent's own settings.

import type { GatewayClient, ConfigChoice, ConfigGroup, ConfigOption, ModeSelection, SessionLog } from "@acp-gateway/client";
import type { Act } from "./SessionView";

interface Props {
  log: SessionLog;
  client: GatewayClient;
  sessionId: string;
  act: Act;
}

export function Options({ log, client, sessionId, act }: Props) {
  // Agents that have moved their modes into the options often still send both.
  const modeIsOption = log.configOptions.some((option) => option.category === "mode");
  return (
    <>
      {log.modes && !modeIsOption && log.modes.availableModes.length > 0 && (
        <label className="option">
          <span>Mode</span>
          <select value={log.modes.currentModeId} onChange={(event) => void act(() => client.setMode(sessionId, event.target.value))}>
            {log.modes.availableModes.map(({ id, name, description }) => (
              <Choice key={id} value={id} name={name} description={description} denied={log.deniedModes.some((denied) => denied.modeId === id)} />
            ))}
          </select>
        </label>
      )}
      {log.configOptions.map((option) => (
        <ConfigControl
          key={option.id}
          option={option}
          denied={log.deniedModes.filter((denied) => denied.configId === option.id)}
          onChange={(value) => void act(() => client.setConfig(sessionId, option.id, value))}
        />
      ))}
    </>
  );
}

/** Why a choice is disabled. */
export const DENIED = "The operator of this gateway denies this mode.";

interface ControlProps {
  option: ConfigOption;
  denied: ModeSelection[];
  onChange(value: string | boolean): void;
}

function ConfigControl({ option, denied, onChange }: ControlProps) {
  if (option.type === "boolean") {
    const on = option.currentValue === true;
    const off = denied.length > 0 && !on;
    return (
      <label className="option" title={off ? DENIED : (option.description ?? undefined)}>
        <input type="checkbox" checked={on} disabled={off} onChange={(event) => onChange(event.target.checked)} />
        <span>{off ? `${option.name} (denied)` : option.name}</span>
      </label>
    );
  }
  if (option.type !== "select" || !Array.isArray(option.options)) return null;
  const item = (choice: ConfigChoice | ConfigGroup) =>
    "value" in choice ? (
      <Choice
        key={choice.value}
        value={choice.value}
        name={choice.name}
        description={choice.description}
        denied={denied.some((selection) => selection.value === choice.value)}
      />
    ) : null;
  return (
    <label className="option" title={option.description ?? undefined}>
      <span>{option.name}</span>
      <select value={String(option.currentValue)} onChange={(event) => onChange(event.target.value)}>
        {option.options.map((choice) =>
          "group" in choice ? (
            <optgroup key={choice.group} label={choice.name}>
              {choice.options.map(item)}
            </optgroup>
          ) : (
            item(choice)
          ),
        )}
      </select>
    </label>
  );
}

interface ChoiceProps {
  value: string;
  name: string;
  description?: string | null | undefined;
  denied: boolean;
}

function Choice({ value, name, description, denied }: ChoiceProps) {
  return (
    <option value={value} disabled={denied} title={denied ? DENIED : (description ?? undefined)}>
      {denied ? `${name} (denied)` : name}
    </option>
  );
}
