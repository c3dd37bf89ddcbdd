// The action of a tool call, from its raw input. A title may be shortened, but a person who approves a call must see
// the complete action. Agents use different names for the members of their input, so the code tries the usual names
// in order.

import type { Raw, ToolItem } from "@acp-gateway/client";
import { line, record, records, text, visible } from "@acp-gateway/client/read";

export interface Action {
  command: string | null;
  /** Paths and addresses that the call names. */
  targets: string[];
  /** The working directory, if the call contains one. */
  cwd: string | null;
  /** The whole input, as the agent passes it to its tool. */
  input: unknown;
}

const COMMAND = ["command", "cmd", "script", "commands"];
const CWD = ["cwd", "workdir", "working_directory", "workingDirectory", "dir_path", "directory"];
const TARGET = ["path", "file_path", "filePath", "abs_path", "absolute_path", "notebook_path", "uri", "url"];

/** A permission request may contain less than the card of its call, or more. The newer value has priority. */
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
