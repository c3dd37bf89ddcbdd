// A line diff: the longest common subsequence of the lines between the common head and tail. It is for people, and is
// not minimal for large inputs.

export interface DiffLine {
  kind: "same" | "removed" | "added" | "skipped";
  text: string;
  before: number | null;
  after: number | null;
}

/** Above this many cells the middle is shown as replaced altogether. */
const MAX_CELLS = 1_000_000;
const CONTEXT = 3;

export function diffLines(before: string | null, after: string): DiffLine[] {
  const old = split(before ?? "");
  const fresh = split(after);
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < fresh.length - head && old[old.length - 1 - tail] === fresh[fresh.length - 1 - tail]) tail += 1;

  const lines: DiffLine[] = [];
  let oldAt = 0;
  let freshAt = 0;
  const push = (kind: "same" | "removed" | "added") => {
    const text = kind === "added" ? fresh[freshAt]! : old[oldAt]!;
    lines.push({ kind, text, before: kind === "added" ? null : oldAt + 1, after: kind === "removed" ? null : freshAt + 1 });
    if (kind !== "added") oldAt += 1;
    if (kind !== "removed") freshAt += 1;
  };
  for (let index = 0; index < head; index += 1) push("same");
  for (const kind of middle(old.slice(head, old.length - tail), fresh.slice(head, fresh.length - tail))) push(kind);
  for (let index = 0; index < tail; index += 1) push("same");
  return foldUnchanged(lines);
}

function split(text: string): string[] {
  if (text === "") return [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

function middle(old: string[], fresh: string[]): ("same" | "removed" | "added")[] {
  const steps: ("same" | "removed" | "added")[] = [];
  if (old.length * fresh.length > MAX_CELLS) {
    return [...old.map(() => "removed" as const), ...fresh.map(() => "added" as const)];
  }
  const width = fresh.length + 1;
  const lengths = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = fresh.length - 1; j >= 0; j -= 1) {
      const down = lengths[(i + 1) * width + j]!;
      const right = lengths[i * width + j + 1]!;
      lengths[i * width + j] = old[i] === fresh[j] ? lengths[(i + 1) * width + j + 1]! + 1 : Math.max(down, right);
    }
  }
  let i = 0;
  let j = 0;
  while (i < old.length || j < fresh.length) {
    if (i < old.length && j < fresh.length && old[i] === fresh[j]) {
      steps.push("same");
      i += 1;
      j += 1;
    } else if (j >= fresh.length || (i < old.length && lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!)) {
      steps.push("removed");
      i += 1;
    } else {
      steps.push("added");
      j += 1;
    }
  }
  return steps;
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
  return { kind: "skipped", text: count === 1 ? "1 unchanged line" : `${count} unchanged lines`, before: null, after: null };
}
