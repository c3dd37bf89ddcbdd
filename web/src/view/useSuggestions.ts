// The suggestions while a person types a command or a file, and the keys that select one.

import { useEffect, useMemo, useState, type KeyboardEvent } from "react";
import type { GatewayClient, Command, FileEntry, FileQuery } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { bestFiles, commandsLike, isFolder, mention, openMention, typedAt, type Typed } from "../model/suggest";
import { strings } from "../strings";

export interface Suggestion {
  key: string;
  words: string;
  /** What a person writes behind it. */
  hint: string | null;
  about: string;
  /** Replaces what was typed. */
  text: string;
  /** The path of a file that the message then names. */
  path: string | null;
}

export interface Suggestions {
  typed: Typed | null;
  all: Suggestion[];
  active: number;
  /** Returns whether the key was for the suggestions. */
  press(event: KeyboardEvent): boolean;
}

interface Field {
  client: GatewayClient;
  /** The session whose files are suggested. Null: no files are. */
  sessionId: string | null;
  commands: Command[];
  text: string;
  caret: number;
  onPick(suggestion: Suggestion, typed: Typed): void;
}

/** A search begins when a person pauses. */
const PAUSE_MS = 120;
/** The entries of which the best are suggested. */
const MOST_FILES = 200;

export function useSuggestions({ client, sessionId, commands, text, caret, onPick }: Field): Suggestions {
  const typed = useMemo(() => typedAt(text, caret), [text, caret]);
  const files = useFiles(client, sessionId, typed?.kind === "file" ? typed.query : null);
  const [active, setActive] = useState(0);
  /** The place of the "/" or "@" whose suggestions were closed. */
  const [closed, setClosed] = useState<number | null>(null);
  const query = typed ? `${typed.kind} ${typed.query}` : "";
  useEffect(() => setActive(0), [query, files]);
  useEffect(() => {
    if (typed === null) setClosed(null);
  }, [typed]);

  const all = useMemo(() => {
    if (!typed || closed === typed.from) return [];
    return typed.kind === "command" ? commandsLike(commands, typed.query).map(ofCommand) : files.map(ofFile);
  }, [typed, closed, commands, files]);

  function press(event: KeyboardEvent): boolean {
    if (!typed || all.length === 0 || event.nativeEvent.isComposing) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) setActive((active + step + all.length) % all.length);
    else if (event.key === "Escape") setClosed(typed.from);
    else if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey)) onPick(all[Math.min(active, all.length - 1)]!, typed);
    else return false;
    event.preventDefault();
    return true;
  }

  return { typed, all, active: Math.min(active, all.length - 1), press };
}

/** `query`: null if no file is typed. */
function useFiles(client: GatewayClient, sessionId: string | null, query: string | null): FileEntry[] {
  const [files, setFiles] = useState<FileEntry[]>([]);
  useEffect(() => {
    if (query === null || sessionId === null) return setFiles([]);
    const abort = new AbortController();
    const timer = setTimeout(() => {
      client.files(sessionId, searchFor(query), { signal: abort.signal }).then(
        ({ files }) => setFiles(bestFiles(files, query)),
        // A key without the right to see files, and a session on another host, have no suggestions.
        () => setFiles([]),
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [client, sessionId, query]);
  return files;
}

/** The entries of a folder whose name is complete, else the files of all folders. */
function searchFor(query: string): FileQuery {
  return query.endsWith("/") ? { path: query.slice(0, -1), limit: MOST_FILES } : { match: query, limit: MOST_FILES };
}

function ofCommand({ name, description, hint }: Command): Suggestion {
  return { key: name, words: `/${visible(name)}`, hint, about: description ?? "", text: `/${name} `, path: null };
}

/** A folder continues the search in it. */
function ofFile(entry: FileEntry): Suggestion {
  const { path } = entry;
  if (isFolder(entry)) return { key: path, words: `${visible(path)}/`, hint: null, about: strings.composer.folder, text: openMention(path), path: null };
  return { key: path, words: visible(path), hint: null, about: "", text: `${mention(path)} `, path };
}
