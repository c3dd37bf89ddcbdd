// What a person is about to name in a message: a command of the agent ("/" at its beginning) or a file ("@" before a word).

import { go } from "fuzzysort";
import type { Command, FileEntry } from "@acp-gateway/client";

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
  const file = /(?:^|\s)@([^\s@]*)$/.exec(before);
  return file ? { kind: "file", query: file[1]!, from: caret - file[1]!.length - 1 } : null;
}

/** Commands that begin with the query, then commands that are similar. None if the query is a whole command. */
export function commandsLike(commands: readonly Command[], query: string): Command[] {
  if (commands.some((command) => command.name === query)) return [];
  const first = commands.filter((command) => command.name.startsWith(query));
  if (query === "") return first.slice(0, MOST);
  const similar = go(query, commands, { key: "name", limit: MOST, threshold: 0.2 }).map((result) => result.obj);
  return [...first, ...similar.filter((command) => !first.includes(command))].slice(0, MOST);
}

/** The best files of a search. The gateway's order is that of their paths. */
export function bestFiles(files: readonly FileEntry[], query: string): FileEntry[] {
  const usable = files.filter(({ type, path }) => (type === "file" || type === "folder") && !/\s/.test(path));
  if (query === "") return usable.slice(0, MOST);
  const similar = go(query, usable, { key: "path", limit: MOST, threshold: 0 }).map((result) => result.obj);
  return similar.length > 0 ? similar : usable.slice(0, MOST);
}

/** The files that a message names with "@". `known`: the paths that were chosen from suggestions. */
export function mentioned(text: string, known: ReadonlySet<string>): string[] {
  const named = new Set([...text.matchAll(/(?<=^|\s)@(\S+)/g)].map((match) => match[1]!));
  return [...known].filter((path) => named.has(path));
}
