// The session's mode and the agent's own settings.

import type { Client } from "../api/client";
import type { ConfigChoice, ConfigGroup, ConfigOption } from "../api/types";
import type { SessionLog } from "../model/state";
import type { Act } from "./SessionView";

interface Props {
  log: SessionLog;
  client: Client;
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
            {log.modes.availableModes.map((mode) => (
              <option key={mode.id} value={mode.id} title={mode.description ?? undefined}>
                {mode.name}
              </option>
            ))}
          </select>
        </label>
      )}
      {log.configOptions.map((option) => (
        <ConfigControl key={option.id} option={option} onChange={(value) => void act(() => client.setConfig(sessionId, option.id, value))} />
      ))}
    </>
  );
}

function ConfigControl({ option, onChange }: { option: ConfigOption; onChange(value: string | boolean): void }) {
  if (option.type === "boolean") {
    return (
      <label className="option" title={option.description ?? undefined}>
        <input type="checkbox" checked={option.currentValue === true} onChange={(event) => onChange(event.target.checked)} />
        <span>{option.name}</span>
      </label>
    );
  }
  if (option.type !== "select" || !Array.isArray(option.options)) return null;
  return (
    <label className="option" title={option.description ?? undefined}>
      <span>{option.name}</span>
      <select value={String(option.currentValue)} onChange={(event) => onChange(event.target.value)}>
        {option.options.map((choice) =>
          "group" in choice ? (
            <optgroup key={choice.group} label={choice.name}>
              {choice.options.map(choiceItem)}
            </optgroup>
          ) : (
            choiceItem(choice)
          ),
        )}
      </select>
    </label>
  );
}

function choiceItem(choice: ConfigChoice | ConfigGroup) {
  return "value" in choice ? (
    <option key={choice.value} value={choice.value} title={choice.description ?? undefined}>
      {choice.name}
    </option>
  ) : null;
}
