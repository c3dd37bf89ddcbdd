// The action of a tool call, as far as its raw input describes it. A title may be shortened; a person who approves a call has to
// see all of it. Agents name the members of their input differently, so the usual names are tried in turn.

import type { Raw } from "../api/types";
import { line, record, records, text } from "./read";
import type { ToolItem } from "./state";
import { visible } from "./words";

export interface Action {
  command: string | null;
  /** Paths and addresses that the call names. */
  targets: string[];
  /** Where it runs, if the call says so. */
  cwd: string | null;
  /** The whole input, as the agent passes it to its tool. */
  input: unknown;
}

const COMMAND = ["command", "cmd", "script", "commands"];
const CWD = ["cwd", "workdir", "working_directory", "workingDirectory", "dir_path", "directory"];
const TARGET = ["path", "file_path", "filePath", "abs_path", "absolute_path", "notebook_path", "uri", "url"];

/** A permission request may say less than the card of its call, and the other way round: what is newer comes first. */
export function actionOf(toolCall: Raw | null, item: ToolItem | null): Action {
  const input = toolCall?.["rawInput"] ?? item?.rawInput;
  const members = record(input);
  const located = toolCall?.["locations"] ?? item?.locations;
  const places = records(located).map((entry) => line(entry["path"]));
  const named = TARGET.map((key) => line(members?.[key]));
  const meta = record(record(toolCall?.["_meta"])?.["terminal_info"]);
  return {
    command: first(COMMAND, members, command),
    targets: [...new Set([...named, ...places].filter((place) => place !== null))],
    cwd: first(CWD, members, line) ?? line(meta?.["cwd"]),
    input,
  };
}

function first(keys: string[], members: Raw | null, read: (value: unknown) => string | null): string | null {
  for (const key of keys) {
    const found = read(members?.[key]);
    if (found) return found;
  }
  return null;
}

/** A command is a text for a shell, or a list of arguments. */
function command(value: unknown): string | null {
  if (!Array.isArray(value)) return line(value);
  return value.map((part) => argument(text(part) ?? JSON.stringify(part))).join(" ");
}

function argument(part: string): string {
  return /^[\w@%+=:,./-]+$/.test(part) ? part : visible(JSON.stringify(part));
}
