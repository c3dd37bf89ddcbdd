// Actions that a person cannot undo, by the signs that the page can see. No sign does not mean that an action is safe.

import type { RequestItem } from "@acp-gateway/client";
import { line, record, records } from "@acp-gateway/client/read";
import { strings } from "../strings";
import type { Action } from "./action";

/** The words of a command from its program on. */
type Sign = (words: string[]) => string | null;

const any = (words: string[], pattern: RegExp) => words.some((word) => pattern.test(word));
const deletes: Sign = () => strings.requests.deletesFiles;
const asRoot: Sign = () => strings.requests.runsAsRoot;
const overwrites: Sign = () => strings.requests.overwritesDisk;

function git(words: string[]): string | null {
  if (words.includes("push") && any(words, /^(-[a-z]*f[a-z]*|--force.*|--mirror|--delete|\+.+)$/)) return strings.requests.overwritesBranch;
  const discards =
    (words.includes("reset") && words.includes("--hard")) ||
    (words.includes("clean") && any(words, /^(-[a-zA-Z]*f[a-zA-Z]*|--force)$/)) ||
    (words.includes("checkout") && any(words, /^(--|\.|-f|--force)$/)) ||
    words.includes("restore") ||
    (words.includes("stash") && any(words, /^(drop|clear)$/)) ||
    (words.includes("branch") && words.includes("-D"));
  return discards ? strings.requests.discardsChanges : null;
}

/** By the name of the program. */
const SIGNS = new Map<string, Sign>([
  ...["rm", "rmdir", "unlink", "del", "remove-item"].map((program): [string, Sign] => [program, deletes]),
  ...["rmtree", "shutil.rmtree", "os.remove", "os.unlink", "rmsync", "unlinksync", "fs.rmsync", "fs.unlinksync"].map((call): [string, Sign] => [call, deletes]),
  ["find", (words) => (words.includes("-delete") ? strings.requests.deletesFiles : null)],
  ["git", git],
  ...["sudo", "doas", "pkexec", "su", "runas"].map((program): [string, Sign] => [program, asRoot]),
  ...["mkfs", "shred", "wipefs", "truncate"].map((program): [string, Sign] => [program, overwrites]),
  ["dd", (words) => (any(words, /^of=/) ? strings.requests.overwritesDisk : null)],
]);

const FETCHES = new Set(["curl", "wget", "iwr", "invoke-webrequest"]);
const RUNS = new Set(["sh", "bash", "zsh", "dash", "ksh", "fish", "eval", "source", ".", "python", "python3", "node", "perl", "ruby", "php", "iex", "pwsh"]);
/** Programs that run the program after them. */
const PREFIXES = new Set(["sudo", "doas", "env", "nohup", "time", "exec", "xargs"]);
const DISK = /(^|>)\/dev\/(sd|hd|vd|nvme|mmcblk|disk)/;
/** Between simple commands. The parts at odd places are the separators. */
const SEPARATOR = /(\$\(|<\(|\|\||&&|\|&|[;&|\n`(){}])/;

/** All signs in these commands. Each character is read once, because a command can be long. */
function signsIn(commands: string[]): string[] {
  const found = new Set<string>();
  for (const command of commands) {
    // A risk can need two parts: a download into a pipe, and a program that runs its input.
    let fetched = false;
    let runs = false;
    const parts = command.split(SEPARATOR);
    for (let at = 0; at < parts.length; at += 2) {
      const separator = parts[at - 1] ?? "";
      // Quotes are part of the words of nested commands, and so are the brackets and commas of lists.
      const words = parts[at]!.split(/[\s"'\\,[\]]+/).filter((word) => word !== "");
      const programs = words.map((word) => word.replace(/^\w+=/, "").replace(/^.*\//, "").toLowerCase());
      if (words.some((word, index) => word.includes(">") && DISK.test(word.endsWith(">") ? (words[index + 1] ?? "") : word))) found.add(strings.requests.overwritesDisk);
      // The arguments after the first occurrence of a program include those after later ones.
      const seen = new Set<string>();
      programs.forEach((program, index) => {
        const name = program.startsWith("mkfs.") ? "mkfs" : program;
        const sign = SIGNS.get(name);
        if (!sign || seen.has(name)) return;
        seen.add(name);
        const risk = sign(words.slice(index));
        if (risk !== null) found.add(risk);
      });
      const fetches = programs.some((program) => FETCHES.has(program));
      const isRun = RUNS.has(programs[0] ?? "") || (PREFIXES.has(programs[0] ?? "") && programs.some((program) => RUNS.has(program)));
      const piped = separator === "|" || separator === "|&";
      const substituted = separator === "$(" || separator === "<(" || separator === "`";
      if ((piped && fetched && isRun) || (substituted && runs && fetches)) found.add(strings.requests.runsFromNetwork);
      fetched = fetches || (piped && fetched);
      runs = isRun;
    }
  }
  return [...found];
}

/** Calls of these kinds run nothing, so that words in their input are no commands. */
const RUNS_NOTHING = new Set(["read", "edit", "search", "think", "fetch", "move", "switch_mode"]);

/** All risks of a call. `kind`: that of the tool call. `texts`: where the words of a command can be, beside the command itself. */
export function risksOf(kind: string | null, action: Pick<Action, "plain" | "isComplete" | "input">, texts: string[] = []): string[] {
  const own = kind === "delete" ? [strings.requests.deletesFiles] : [];
  if (kind !== null && RUNS_NOTHING.has(kind) && action.plain.length === 0) return own;
  // In an unknown form, any text may be the command.
  const others = action.isComplete ? [] : textsIn(action.input);
  const described = action.plain.length === 0 ? texts : [];
  return [...new Set([...own, ...signsIn([...action.plain, ...others, ...described])])];
}

/** All risks of the call that a request asks about. */
export function requestRisks(kind: string | null, action: Action, { toolCall, title, description }: RequestItem): string[] {
  const content = records(toolCall?.["content"]).map((part) => line(record(part["content"])?.["text"]));
  return risksOf(kind, action, [title, description, ...(kind === "execute" ? content : [])].filter((text) => text !== null));
}

/** Deeper values are read as JSON. */
const MAX_DEPTH = 32;

/** All texts in a value. The words of a list are one text. */
function textsIn(value: unknown, depth = 0): string[] {
  if (typeof value === "string") return [value];
  if (typeof value !== "object" || value === null) return [];
  if (depth > MAX_DEPTH) return [JSON.stringify(value)];
  const members = Object.entries(value).filter(([name]) => name !== "description").map(([, entry]: [string, unknown]) => entry);
  const nested = (entries: unknown[]) => entries.flatMap((entry) => textsIn(entry, depth + 1));
  if (!Array.isArray(value)) return nested(members);
  return [value.filter((entry) => typeof entry === "string").join(" "), ...nested(value.filter((entry) => typeof entry === "object"))];
}
