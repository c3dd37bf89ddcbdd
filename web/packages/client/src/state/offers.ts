// The modes, settings and commands that an agent offers. Any member may be absent or have an unexpected type.

import type { Command, ConfigChoice, ConfigGroup, ConfigOption, Raw, SessionMode, SessionModes } from "../types.js";
import { line, record, records, text, visible } from "./read.js";

export function modes(value: unknown): SessionModes | null {
  const raw = record(value);
  const currentModeId = text(raw?.["currentModeId"]);
  const available = raw?.["availableModes"];
  return currentModeId === null || !Array.isArray(available) ? null : { currentModeId, availableModes: all<SessionMode>(available, "id") };
}

export function configOptions(value: unknown): ConfigOption[] {
  return all<ConfigOption>(value, "id", ({ type, category, currentValue, options }) => ({
    type: text(type) ?? "",
    category: text(category),
    currentValue: typeof currentValue === "boolean" ? currentValue : (text(currentValue) ?? ""),
    options: records(options).flatMap((option): (ConfigChoice | ConfigGroup)[] => ("group" in option ? all<ConfigGroup>([option], "group", choices) : all<ConfigChoice>([option], "value"))),
  }));
}

export function commands(value: unknown): Command[] {
  return all<Command>(value, "name", ({ name, input }) => ({ name, hint: line(record(input)?.["hint"]) }));
}

function choices({ options }: Raw): Raw {
  return { options: all<ConfigChoice>(options, "value") };
}

/** The entries whose member `id` is a text, with a name and a description, and with the members of `more`. */
function all<T>(value: unknown, id: string, more?: (raw: Raw) => Raw): T[] {
  return records(value).flatMap((raw) => {
    const of = text(raw[id]);
    const named = { [id]: of, name: line(raw["name"]) ?? visible(of ?? ""), description: line(raw["description"]) };
    return of === null ? [] : [{ ...named, ...more?.(raw) } as T];
  });
}
