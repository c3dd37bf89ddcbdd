// A change to a file, line by line and, within changed lines, word by word. It is for people, and is not minimal for large
// inputs.

import { diffArrays, diffWordsWithSpace } from "diff";
import { strings } from "../strings";

export interface Part {
  text: string;
  changed: boolean;
}

export interface DiffLine {
  kind: "same" | "removed" | "added" | "skipped";
  /** One part, unless a word of a similar line was changed. */
  parts: Part[];
  before: number | null;
  after: number | null;
}

/** Two lines side by side. */
export interface DiffRow {
  left: DiffLine | null;
  right: DiffLine | null;
}

/** A change of more lines is shown as replaced altogether. */
const MAX_CHANGED_LINES = 600;
/** Longer lines are not compared word by word. */
const MAX_LINE = 500;
const MAX_CHANGED_WORDS = 60;
/** The smallest part of a line that similar lines have in common. */
const SIMILAR = 0.4;
const CONTEXT = 3;

export function diffLines(before: string | null, after: string): DiffLine[] {
  return foldUnchanged(allLines(before, after));
}

/** A change with the unchanged lines around it. */
export interface Hunk {
  /** The number of its first line in the new text, or in the old one if the new text has none. */
  start: number;
  lines: DiffLine[];
}

/** The changes of a file, each of which a person can undo. */
export function hunksOf(before: string | null, after: string | null): Hunk[] {
  const hunks: Hunk[] = [];
  let open: DiffLine[] = [];
  const close = () => {
    if (open.length > 0) hunks.push({ start: open.find((line) => line.after !== null)?.after ?? open[0]!.before ?? 1, lines: open });
    open = [];
  };
  for (const line of diffLines(before, after ?? "")) {
    if (line.kind === "skipped") close();
    else open.push(line);
  }
  close();
  return hunks;
}

/** The new text without a change: its lines are those of the old text again. */
export function withoutHunk(before: string | null, after: string | null, hunk: Hunk): string {
  const [old, fresh] = [pieces(before ?? ""), pieces(after ?? "")];
  const inHunk = (number: number | null, side: "before" | "after") => number !== null && hunk.lines.some((line) => line[side] === number && line.kind !== "same");
  const text: string[] = [];
  for (const line of allLines(before, after ?? "")) {
    if (line.kind === "removed" && inHunk(line.before, "before")) text.push(old[line.before! - 1]!);
    else if (line.kind === "same" || (line.kind === "added" && !inHunk(line.after, "after"))) text.push(fresh[line.after! - 1]!);
  }
  return text.join("");
}

/** The lines of a text with their ends. */
function pieces(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function allLines(before: string | null, after: string): DiffLine[] {
  const old = split(before ?? "");
  const fresh = split(after);
  const changes = diffArrays(old, fresh, { maxEditLength: MAX_CHANGED_LINES }) ?? [
    { value: old, removed: true, added: false },
    { value: fresh, removed: false, added: true },
  ];
  const lines: DiffLine[] = [];
  let [oldAt, freshAt] = [0, 0];
  for (const { value, removed, added } of changes) {
    for (const text of value) {
      const kind = removed ? "removed" : added ? "added" : "same";
      lines.push({ kind, parts: [{ text, changed: false }], before: added ? null : ++oldAt, after: removed ? null : ++freshAt });
    }
  }
  markWords(lines);
  return lines;
}

/** The numbers of added and removed lines. */
export function diffCounts(before: string | null, after: string): { added: number; removed: number } {
  const lines = diffLines(before, after);
  const count = (kind: DiffLine["kind"]) => lines.filter((line) => line.kind === kind).length;
  return { added: count("added"), removed: count("removed") };
}

/** The lines of a diff side by side. */
export function sideBySide(lines: DiffLine[]): DiffRow[] {
  const rows: DiffRow[] = [];
  for (let at = 0; at < lines.length; ) {
    const { removed, added } = changeAt(lines, at);
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1) rows.push({ left: removed[index] ?? null, right: added[index] ?? null });
    at += removed.length + added.length;
    const same = lines[at];
    if (removed.length + added.length === 0 && same) {
      rows.push({ left: same, right: same });
      at += 1;
    }
  }
  return rows;
}

function split(text: string): string[] {
  if (text === "") return [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** The removed lines at this place, and the added lines after them. */
function changeAt(lines: DiffLine[], at: number): { removed: DiffLine[]; added: DiffLine[] } {
  const run = (from: number, kind: DiffLine["kind"]) => {
    let to = from;
    while (lines[to]?.kind === kind) to += 1;
    return lines.slice(from, to);
  };
  const removed = run(at, "removed");
  return { removed, added: run(at + removed.length, "added") };
}

/** Marks the changed words of lines that replace similar lines. */
function markWords(lines: DiffLine[]): void {
  for (let at = 0; at < lines.length; at += 1) {
    const { removed, added } = changeAt(lines, at);
    if (removed.length === 0) continue;
    for (const [index, line] of removed.entries()) if (added[index]) compare(line, added[index]);
    at += removed.length + added.length - 1;
  }
}

function compare(old: DiffLine, fresh: DiffLine): void {
  const [before, after] = [textOf(old), textOf(fresh)];
  if (before.length > MAX_LINE || after.length > MAX_LINE) return;
  const changes = diffWordsWithSpace(before, after, { maxEditLength: MAX_CHANGED_WORDS });
  if (!changes) return;
  const common = changes.filter((change) => !change.added && !change.removed).reduce((sum, { value }) => sum + value.trim().length, 0);
  if (common < SIMILAR * Math.max(before.trim().length, after.trim().length)) return;
  const parts = (side: "added" | "removed") => changes.filter((change) => change[side] || !(change.added || change.removed)).map((change) => ({ text: change.value, changed: change[side] }));
  old.parts = parts("removed");
  fresh.parts = parts("added");
}

/** Characters of a line that are shown. */
const MAX_SHOWN = 100_000;

/** A part of a line as it is shown, and the number of characters that are missing. */
export function shownPart(text: string): { text: string; rest: number } {
  return { text: text.slice(0, MAX_SHOWN), rest: Math.max(0, text.length - MAX_SHOWN) };
}

export function textOf(line: DiffLine): string {
  return line.parts.map((part) => part.text).join("");
}

/** Omits long unchanged parts, except a few lines around each change. */
function foldUnchanged(lines: DiffLine[]): DiffLine[] {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, index) => {
    if (line.kind !== "same") near.fill(1, Math.max(0, index - CONTEXT), index + CONTEXT + 1);
  });
  const shown: DiffLine[] = [];
  let skipped = 0;
  lines.forEach((line, index) => {
    if (near[index]) {
      if (skipped > 0) shown.push(skip(skipped));
      skipped = 0;
      shown.push(line);
    } else {
      skipped += 1;
    }
  });
  if (skipped > 0) shown.push(skip(skipped));
  return shown;
}

function skip(count: number): DiffLine {
  const text = strings.tools.unchangedLines(count);
  return { kind: "skipped", parts: [{ text, changed: false }], before: null, after: null };
}
