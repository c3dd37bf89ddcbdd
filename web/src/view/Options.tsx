// The session's mode and the agent's own settings.

import type { GatewayClient, ConfigChoice, ConfigGroup, ConfigOption, ModeSelection, SessionLog } from "@acp-gateway/client";
import { strings } from "../strings";
import { Icon } from "./Icon";
import { Popover } from "./Popover";
import type { Act } from "./act";

interface Props {
  log: SessionLog;
  client: GatewayClient;
  sessionId: string;
  act: Act;
}

/** The mode and the model stand beside the message. The other options are in a menu. */
export function Options({ log, client, sessionId, act }: Props) {
  // Agents that have moved their modes into the options often still send both.
  const modeIsOption = log.configOptions.some((option) => option.category === "mode");
  const control = (option: ConfigOption) => (
    <ConfigControl
      key={option.id}
      option={option}
      denied={log.deniedModes.filter((denied) => denied.configId === option.id)}
      onChange={(value) => void act(() => client.setConfig(sessionId, option.id, value))}
    />
  );
  const others = log.configOptions.filter((option) => !isNear(option));
  return (
    <>
      {log.modes && !modeIsOption && log.modes.availableModes.length > 0 && (
        <label className="option option-name-hidden">
          <span>{strings.composer.mode}</span>
          <select value={log.modes.currentModeId} onChange={(event) => void act(() => client.setMode(sessionId, event.target.value))}>
            {log.modes.availableModes.map(({ id, name, description }) => (
              <Choice key={id} value={id} name={name} description={description} denied={log.deniedModes.some((denied) => denied.modeId === id)} />
            ))}
          </select>
        </label>
      )}
      {log.configOptions.filter(isNear).map(control)}
      {others.length > 0 && (
        <Popover button={<Icon name="settings" />} className="icon-button" label={strings.composer.moreOptions} name={strings.composer.options} place="above">
          {() => others.map(control)}
        </Popover>
      )}
    </>
  );
}

function isNear(option: ConfigOption): boolean {
  return option.type === "select" && (option.category === "mode" || option.category === "model");
}

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
      <label className="option" title={off ? strings.composer.deniedMode : (option.description ?? undefined)}>
        <input type="checkbox" checked={on} disabled={off} onChange={(event) => onChange(event.target.checked)} />
        <span>{off ? strings.composer.denied(option.name) : option.name}</span>
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
    <label className={isNear(option) ? "option option-name-hidden" : "option"} title={option.description ?? undefined}>
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
    <option value={value} disabled={denied} title={denied ? strings.composer.deniedMode : (description ?? undefined)}>
      {denied ? strings.composer.denied(name) : name}
    </option>
  );
}
