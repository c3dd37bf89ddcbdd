// Long texts in parts. One line of many megabytes would block the page, so its parts are shown on demand.

/** A part ends at a line, if one ends in its second half. */
export function partEnd(text: string, from: number, size: number): number {
  if (text.length - from <= size) return text.length;
  const part = text.slice(from, from + size);
  for (const end of ["\n\n", "\n"]) {
    const at = part.lastIndexOf(end);
    if (at > size / 2) return from + at + end.length;
  }
  // The second half of a character is not the beginning of a part.
  return from + (/[\ud800-\udbff]$/.test(part) ? size - 1 : size);
}

/** The first `most` parts, and the number of characters behind them. The parts of a text that grows stay, except the last one. */
export function partsOf(text: string, size: number, most: number): { parts: string[]; rest: number } {
  const parts: string[] = [];
  let from = 0;
  while (parts.length < most && (from < text.length || parts.length === 0)) {
    const to = partEnd(text, from, size);
    parts.push(text.slice(from, to));
    from = to;
  }
  return { parts, rest: text.length - from };
}

/** The beginning of the last part of a text with at most `size` characters. */
export function lastPart(text: string, size: number): number {
  const from = text.length - size;
  if (from <= 0) return 0;
  const line = text.slice(from, from + size / 2).indexOf("\n");
  if (line >= 0) return from + line + 1;
  return /[\udc00-\udfff]/.test(text[from]!) ? from + 1 : from;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/gm;

/** The opening line of the code block that is still open at the end of a Markdown text, or "". */
export function openFence(markdown: string): string {
  let open = "";
  for (const [line, fence, rest] of markdown.matchAll(FENCE)) {
    if (open === "") open = fence!.startsWith("`") && rest!.includes("`") ? "" : line.trim();
    else if (rest!.trim() === "" && fence![0] === open[0] && fence!.length >= /^(.)\1*/.exec(open)![0].length) open = "";
  }
  return open;
}

/** The language and the content of a text that is one code block, or null. */
export function fenced(text: string): { language: string; text: string } | null {
  const trimmed = text.trim();
  const opening = /^(`{3,}|~{3,})([^\n`]*)\n/.exec(trimmed.slice(0, 200));
  if (!opening) return null;
  const [head, fence, language] = opening;
  const close = `\n${fence}`;
  const end = trimmed.indexOf(close, head.length - 1);
  if (end < 0 || end + close.length !== trimmed.length) return null;
  return { language: language!.trim().split(/\s/)[0]!, text: trimmed.slice(head.length, Math.max(end, head.length)) };
}
