// The mode and the model of a new session. An agent says them only in a session, so the choices are those of its latest one.

import { useEffect, useState } from "react";
import { type ConfigChoice, type ConfigGroup, type GatewayClient, readConfigOptions, readModes, type Session } from "@acp-gateway/client";
import { strings } from "../strings";

/** What a person has selected; the agent's own defaults where nothing was. */
export interface StartSelection {
  modeId?: string;
  config?: Record<string, string>;
}

interface Props {
  /** The latest session of the agent. */
  known: Session;
  selection: StartSelection;
  onSelect(selection: StartSelection): void;
}

export function StartOptions({ known, selection, onSelect }: Props) {
  const options = readConfigOptions(known.configOptions).filter((option) => option.type === "select" && (option.category === "mode" || option.category === "model"));
  const modes = options.some((option) => option.category === "mode") ? [] : (readModes(known.modes)?.availableModes ?? []);
  const denied = known.deniedModes ?? [];
  return (
    <>
      {modes.length > 0 && (
        <Select
          label={strings.start.mode}
          value={selection.modeId ?? ""}
          choices={modes.filter(({ id }) => !denied.some(({ modeId }) => modeId === id)).map(({ id, name }) => ({ value: id, name }))}
          onChange={(modeId) => {
            const { modeId: _, ...rest } = selection;
            onSelect(modeId === "" ? rest : { ...rest, modeId });
          }}
        />
      )}
      {options.map((option) => (
        <Select
          key={option.id}
          label={option.name}
          value={selection.config?.[option.id] ?? ""}
          choices={(option.options ?? []).flatMap(flat).filter(({ value }) => !denied.some((one) => one.configId === option.id && one.value === value))}
          onChange={(value) => {
            const { [option.id]: _, ...others } = selection.config ?? {};
            onSelect({ ...selection, config: value === "" ? others : { ...others, [option.id]: value } });
          }}
        />
      ))}
    </>
  );
}

function flat(choice: ConfigChoice | ConfigGroup): ConfigChoice[] {
  return "group" in choice ? choice.options : [choice];
}

/** A session as it is now. Null until it is known. */
export function useKnownSession(client: GatewayClient, sessionId: string | null): Session | null {
  const [session, setSession] = useState<Session | null>(null);
  useEffect(() => {
    setSession(null);
    if (sessionId === null) return;
    const stop = new AbortController();
    // Without it, the agent's defaults apply.
    client.session(sessionId, { signal: stop.signal }).then(setSession, () => undefined);
    return () => stop.abort();
  }, [client, sessionId]);
  return session;
}

interface SelectProps {
  label: string;
  value: string;
  choices: { value: string; name: string }[];
  onChange(value: string): void;
}

function Select({ label, value, choices, onChange }: SelectProps) {
  return (
    <label className="option option-name-hidden">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.target.value)}>
        <option value="">{strings.start.defaultOf(label)}</option>
        {choices.map((choice) => (
          <option key={choice.value} value={choice.value}>
            {choice.name}
          </option>
        ))}
      </select>
    </label>
  );
}
