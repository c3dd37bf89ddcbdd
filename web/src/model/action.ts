// The action of a tool call, from its raw input. A title may be shortened, but a person who approves a call must see
// the complete action. Agents use different names for the members of their input and nest them differently, so the code
// looks for the usual names in the whole input.

import type { Raw, RequestItem, ToolItem } from "@acp-gateway/client";
import { line, record, records, text, visible } from "@acp-gateway/client/read";

export interface Action {
  /** The whole command with its arguments. The commands of a call with several are separate lines. */
  command: string | null;
  /** The variables that the call sets for its command, as `NAME=value`. */
  env: string[];
  /** Paths and addresses that the call names. */
  targets: string[];
  /** The working directory, if the call contains one. */
  cwd: string | null;
  /** The whole input, as the agent passes it to its tool. */
  input: unknown;
  /** Whether the members above show all of the input. */
  isComplete: boolean;
  /** The commands and variables without quotes, to look for risks. */
  plain: string[];
}

/** A text for a shell, or a list of arguments. */
const COMMAND = ["command", "cmd", "script", "argv", "command_line", "commandLine", "cmdline", "shell_command"];
/** Texts for a shell, each with a command of its own. */
const COMMANDS = "commands";
/** The program of a list of arguments. Without arguments, these members mean other things. */
const PROGRAM = ["program", "executable", "file", "binary"];
const ARGS = ["args", "arguments", "argv", "arg"];
const ENV = ["env", "environment", "env_vars", "environment_variables", "environmentVariables"];
const CWD = ["cwd", "workdir", "working_directory", "workingDirectory", "dir_path", "directory"];
const TARGET = ["path", "file_path", "filePath", "abs_path", "absolute_path", "notebook_path", "uri", "url"];
/** Members that do not change what the call does. */
const NEUTRAL = ["description", "timeout", "timeout_ms", "timeoutMs", "outputByteLimit"];
/** Members that only contain the input. The name of any other one can change the meaning. */
const AROUND = new Set(["input", "params", "parameters", "arguments", "args", "tool_input", "toolInput", "request", "payload", "action", "actions"]);
/** Deeper members are shown by the raw input only. */
const MAX_DEPTH = 8;

/** The members of a tool call in the protocol. */
const CALL = new Set(["toolCallId", "title", "kind", "status", "content", "locations", "rawInput", "rawOutput", "_meta", "sessionUpdate"]);
/** Members of a subject that are no part of its action. */
const SUBJECT = new Set(["type", "title", "toolCallId", "terminalId", "_meta"]);

/** A permission request may contain less than the card of its call, or more. The newer value has priority. */
export function actionOf(toolCall: Raw | null, item: ToolItem | null): Action {
  const input = inputOf(toolCall) ?? item?.rawInput;
  const located = toolCall?.["locations"] ?? item?.locations;
  const places = records(located).map((entry) => line(entry["path"]));
  const meta = record(record(toolCall?.["_meta"])?.["terminal_info"]);
  const found = readInput(input);
  return {
    command: found.commands.length > 0 ? found.commands.join("\n") : null,
    env: found.env,
    targets: [...new Set([...found.targets, ...places].filter((place) => place !== null))],
    cwd: found.cwd ?? line(meta?.["cwd"]),
    input,
    isComplete: !found.hasMore,
    plain: found.plain,
  };
}

/** The action that a request asks about. */
export function requestAction({ params, toolCall }: RequestItem, item: ToolItem | null): Action {
  const subject = record(params["subject"]);
  if (toolCall !== null || subject === null) return withArguments(actionOf(toolCall, item), item);
  return withArguments(actionOf({ rawInput: without(subject, SUBJECT) }, item), item);
}

/** The card of the call may have the arguments of a command that the request names alone. */
function withArguments(asked: Action, item: ToolItem | null): Action {
  if (asked.command === null || item === null) return asked;
  const called = actionOf(null, item);
  return called.command?.startsWith(`${asked.command} `) ? { ...called, cwd: asked.cwd ?? called.cwd } : asked;
}

/** Some agents write the input of a call beside its members. */
function inputOf(toolCall: Raw | null): unknown {
  const input = toolCall?.["rawInput"];
  if (toolCall === null || !isEmpty(input)) return input;
  const others = without(toolCall, CALL);
  return isEmpty(others) ? undefined : others;
}

function isEmpty(input: unknown): boolean {
  return input === undefined || input === null || (record(input) !== null && Object.keys(input).length === 0);
}

function without(members: Raw, names: Set<string>): Raw {
  return Object.fromEntries(Object.entries(members).filter(([name]) => !names.has(name)));
}

interface Found {
  commands: string[];
  env: string[];
  targets: string[];
  cwd: string | null;
  /** A part of the input is none of these. */
  hasMore: boolean;
  plain: string[];
}

function readInput(input: unknown): Found {
  const found: Found = { commands: [], env: [], targets: [], cwd: null, hasMore: false, plain: [] };
  readValue(input, found, 0);
  return found;
}

/** A call can have its input in a member, in a list of actions, and as text in JSON. */
function readValue(value: unknown, found: Found, depth: number): void {
  const inner = typeof value === "string" ? parsed(value) : value;
  const members = record(inner);
  if (inner === null || inner === undefined) return;
  if (depth > MAX_DEPTH) found.hasMore = true;
  else if (Array.isArray(inner)) inner.forEach((entry) => readValue(entry, found, depth + 1));
  else if (members) readMembers(members, found, depth);
  else found.hasMore = true;
}

function readMembers(members: Raw, found: Found, depth: number): void {
  const shown = new Set(NEUTRAL);
  readCommand(members, found, shown);
  for (const name of ENV) {
    const variables = variablesOf(members[name]);
    if (variables === null) continue;
    shown.add(name);
    found.env.push(...variables.map(visible));
    found.plain.push(...variables);
  }
  for (const name of CWD) {
    const folder = line(members[name]);
    if (folder === null || (found.cwd !== null && found.cwd !== folder)) continue;
    shown.add(name);
    found.cwd = folder;
  }
  for (const name of TARGET) {
    const target = line(members[name]);
    if (target === null) continue;
    shown.add(name);
    found.targets.push(target);
  }
  for (const [name, value] of Object.entries(members)) {
    if (shown.has(name) || value === null || value === "") continue;
    if (!AROUND.has(name)) found.hasMore = true;
    readValue(value, found, depth + 1);
  }
}

/** Adds the command of these members with its arguments, and the names of its members to `shown`. */
function readCommand(members: Raw, found: Found, shown: Set<string>): void {
  const lines = members[COMMANDS];
  if (Array.isArray(lines) && lines.length > 0 && lines.every((entry) => typeof entry === "string")) {
    shown.add(COMMANDS);
    found.commands.push(...lines.map(visible));
    found.plain.push(...lines);
  }
  const args = ARGS.find((name) => wordsOf(members[name]) !== null);
  const name = COMMAND.find((candidate) => isCommand(members[candidate])) ?? (args === undefined ? undefined : PROGRAM.find((candidate) => isCommand(members[candidate])));
  if (name === undefined) return;
  const first = wordsOf(members[name])!;
  const rest = args === undefined || args === name ? [] : wordsOf(members[args])!;
  shown.add(name);
  if (args !== undefined) shown.add(args);
  // A text is for a shell, so it has quotes of its own.
  const words = [...(Array.isArray(members[name]) ? first.map(argument) : first.map(visible)), ...(Array.isArray(members[args ?? ""]) ? rest.map(argument) : rest.map(visible))];
  found.commands.push(words.join(" "));
  found.plain.push([...first, ...rest].join(" "));
}

function isCommand(value: unknown): boolean {
  const words = wordsOf(value);
  return words !== null && words.join("").trim() !== "";
}

/** The words of a text or of a list of plain values. Null: another form. */
function wordsOf(value: unknown): string[] | null {
  if (typeof value === "string") return parsed(value) === value ? [value] : null;
  if (!Array.isArray(value) || value.some((entry) => typeof entry === "object")) return null;
  return value.map((entry) => text(entry) ?? String(entry));
}

/** `NAME=value`, from a map, a list of names and values, or a list of such texts. Null: another form. */
function variablesOf(value: unknown): string[] | null {
  const map = record(value);
  const isPlain = (entry: unknown) => typeof entry !== "object";
  if (map) return Object.values(map).every(isPlain) ? Object.entries(map).map(([name, entry]) => `${name}=${String(entry)}`) : null;
  if (!Array.isArray(value)) return null;
  const all = value.map((entry) => {
    const named = record(entry);
    if (!named) return text(entry);
    return typeof named["name"] === "string" && isPlain(named["value"]) && Object.keys(named).length === 2 ? `${named["name"]}=${String(named["value"])}` : null;
  });
  return all.every((entry) => entry !== null) ? all : null;
}

/** The value of a text in JSON, or the text itself. */
function parsed(value: string): unknown {
  if (!/^\s*[[{]/.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

function argument(part: string): string {
  return /^[\w@%+=:,./-]+$/.test(part) ? part : visible(JSON.stringify(part));
}
