// What a person is about to name in a message: a command of the agent ("/" at its beginning) or a file ("@" before a word).

import { go } from "fuzzysort";
import { type Command, type FileEntry, known } from "@acp-gateway/client";

/** The number of suggestions. */
const MOST = 8;

export interface Typed {
  kind: "command" | "file";
  query: string;
  /** The place of the "/" or "@". */
  from: number;
}

export function typedAt(text: string, caret: number): Typed | null {
  const before = text.slice(0, caret);
  const command = /^\/(\S*)$/.exec(before);
  if (command) return { kind: "command", query: command[1]!, from: 0 };
  const file = /(?:^|\s)(@"([^"\n]*)|@([^\s@"]*))$/.exec(before);
  return file ? { kind: "file", query: file[2] ?? file[3]!, from: caret - file[1]!.length } : null;
}

/** Commands that begin with the query, then commands that are similar. None if the query is a whole command. */
export function commandsLike(commands: readonly Command[], query: string): Command[] {
  if (commands.some((command) => command.name === query)) return [];
  const first = commands.filter((command) => command.name.startsWith(query));
  if (query === "") return first.slice(0, MOST);
  const similar = go(query, commands, { key: "name", limit: MOST, threshold: 0.2 }).map((result) => result.obj);
  return [...first, ...similar.filter((command) => !first.includes(command))].slice(0, MOST);
}

/** Folders first, then by name. */
function compare(a: FileEntry, b: FileEntry): number {
  return Number(isFolder(b)) - Number(isFolder(a)) || a.path.localeCompare(b.path, undefined, { numeric: true });
}

export function isFolder({ type }: FileEntry): boolean {
  return known(type) === "folder";
}

/** A path with a space is between quotes, so one with a quote too has no name in a message. */
function isUsable({ type, path }: FileEntry): boolean {
  return (known(type) === "file" || known(type) === "folder") && !/\n|"/.test(path);
}

/** The best files and folders of a search. Without a query, or with a whole folder, the entries in their order. */
export function bestFiles(files: readonly FileEntry[], query: string): FileEntry[] {
  const usable = files.filter(isUsable).sort(compare);
  if (query === "" || query.endsWith("/")) return usable.slice(0, MOST);
  const similar = go(query, usable, { key: "path", threshold: 0 });
  const best = [...similar].sort((a, b) => b.score - a.score || a.target.length - b.target.length || compare(a.obj, b.obj));
  return (best.length > 0 ? best.map((result) => result.obj) : usable).slice(0, MOST);
}

/** A file in a message. */
export function mention(path: string): string {
  return /\s/.test(path) ? `@"${path}"` : `@${path}`;
}

/** A folder in a message, whose files are typed next. */
export function openMention(path: string): string {
  return /\s/.test(path) ? `@"${path}/` : `@${path}/`;
}

/** The files that a message names with "@". `chosen`: the paths that were chosen from suggestions. */
export function mentioned(text: string, chosen: ReadonlySet<string>): string[] {
  const named = new Set([...text.matchAll(/(?<=^|\s)@(?:"([^"\n]+)"|(\S+))/g)].map((match) => match[1] ?? match[2]!));
  return [...chosen].filter((path) => named.has(path));
}
