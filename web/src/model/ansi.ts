// The output of a command as lines of styled text: colours and styles of ECMA-48 (8.3.117, SGR) become names of styles, other
// control sequences are removed, and a line that was overwritten shows its last content.

import { visible } from "@acp-gateway/client/read";

export interface Span {
  text: string;
  /** Names of the style's classes, or "". */
  style: string;
}

/** Cursor movements, window titles and other sequences for a screen. A style (SGR) has its parameters in the first group. */
const SEQUENCES =
  /\u001b\[([\d;:]*)m|\u001b(?:\][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|[PX^_][^\u001b]*(?:\u001b\\|$)|\[[0-?]*[ -/]*[@-~]?|[ -/]*[0-~]?)|\u009b[0-?]*[ -/]*[@-~]?/g;

const COLOURS = ["", "red", "green", "yellow", "blue", "magenta", "cyan", ""];
const DECORATIONS: Record<number, string> = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 9: "strike" };
const ENDS: Record<number, string[]> = { 21: ["bold"], 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 29: ["strike"] };

export function styledLines(output: string): Span[][] {
  const lines: Span[][] = [[]];
  const state = new StyleState();
  let at = 0;
  const append = (text: string) => {
    for (const [index, part] of text.split("\n").entries()) {
      if (index > 0) lines.push([]);
      if (part !== "") lines.at(-1)!.push({ text: part, style: state.style });
    }
  };
  for (const match of output.matchAll(SEQUENCES)) {
    append(output.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[1] !== undefined) state.apply(match[1]);
  }
  append(output.slice(at));
  return lines.map(finished);
}

export function plainText(output: string): string {
  return styledLines(output)
    .map((line) => line.map((span) => span.text).join(""))
    .join("\n");
}

/** The style after a number of sequences. */
class StyleState {
  style = "";
  #colour = "";
  #ground = "";
  #inverse = false;
  readonly #decorations = new Set<string>();

  apply(parameters: string): void {
    const codes = parameters.split(";");
    for (let at = 0; at < codes.length; at += 1) {
      const [code, ...details] = codes[at]!.split(":").map(Number);
      if ((code === 38 || code === 48) && details.length === 0) at += this.#extended(code, codes.slice(at + 1, at + 5).map(Number));
      else if (code === 38 || code === 48) this.#extended(code, details[0] === 2 ? [2, ...details.slice(-3)] : details);
      else if (code === 4 && details[0] === 0) this.#decorations.delete("underline");
      else this.#simple(code ?? 0);
    }
    this.style = this.#names().join(" ");
  }

  #simple(code: number): void {
    if (code === 0) {
      this.#colour = this.#ground = "";
      this.#inverse = false;
      this.#decorations.clear();
    } else if (code in DECORATIONS) this.#decorations.add(DECORATIONS[code]!);
    else if (code in ENDS) ENDS[code]!.forEach((name) => this.#decorations.delete(name));
    else if (code === 7 || code === 27) this.#inverse = code === 7;
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) this.#colour = indexed((code % 10) + (code >= 90 ? 8 : 0));
    else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) this.#ground = indexed((code % 10) + (code >= 100 ? 8 : 0));
    else if (code === 39) this.#colour = "";
    else if (code === 49) this.#ground = "";
  }

  /** A colour of the palette (5) or of red, green and blue (2). Returns the number of its parameters. */
  #extended(code: number, [kind, ...values]: number[]): number {
    const [first = 0, second = 0, third = 0] = values;
    const name = kind === 5 ? indexed(first) : kind === 2 ? mixed(first, second, third) : "";
    if (code === 38) this.#colour = name;
    else this.#ground = name;
    return kind === 5 ? 2 : kind === 2 ? 4 : 1;
  }

  #names(): string[] {
    const names = [...this.#decorations].map((name) => `ansi-${name}`);
    const ground = this.#inverse ? this.#colour || "grey" : this.#ground;
    // Text on a coloured ground has the page's own colour, so that it stays readable.
    if (ground !== "") names.push(`ansi-on-${ground}`);
    else if (this.#colour !== "") names.push(`ansi-${this.#colour}`);
    return names;
  }
}

/** The name of a colour of the palette of 256. Black and white are the page's own text colour. */
function indexed(index: number): string {
  if (index < 8) return COLOURS[index] ?? "";
  if (index < 16) return index === 8 ? "grey" : COLOURS[index - 8]!;
  if (index >= 232) return mixed(...grey(index));
  const cube = index - 16;
  const level = (step: number) => (step % 6) * 51;
  return mixed(level(Math.floor(cube / 36)), level(Math.floor(cube / 6)), level(cube));
}

function grey(index: number): [number, number, number] {
  const level = 8 + (index - 232) * 10;
  return [level, level, level];
}

/** The smallest difference between the strongest and the weakest part of a colour that is not grey. */
const LEAST_COLOUR = 40;

/** The name of the nearest colour of the page. */
function mixed(red: number, green: number, blue: number): string {
  const most = Math.max(red, green, blue);
  const least = Math.min(red, green, blue);
  if (most - least < LEAST_COLOUR) return most < 64 || most > 192 ? "" : "grey";
  const middle = (most + least) / 2;
  return COLOURS[Number(red > middle) + 2 * Number(green > middle) + 4 * Number(blue > middle)]!;
}

function finished(line: Span[]): Span[] {
  // A line ends with CR LF on a terminal.
  const last = line.at(-1);
  if (last?.text.endsWith("\r")) line = line.with(-1, { ...last, text: last.text.slice(0, -1) });
  const written = line.some((span) => /[\r\b]/.test(span.text)) ? overwritten(line) : line;
  return joined(written.map((span) => ({ ...span, text: visible(span.text) })));
}

function overwritten(line: Span[]): Span[] {
  const cells: Span[] = [];
  let at = 0;
  for (const { text, style } of line) {
    for (const letter of text) {
      if (letter === "\r") at = 0;
      else if (letter === "\b") at = Math.max(0, at - 1);
      else cells[at++] = { text: letter, style };
    }
  }
  return joined(cells);
}

/** Joins neighbours of the same style. */
function joined(spans: Span[]): Span[] {
  const all: Span[] = [];
  for (const span of spans) {
    const last = all.at(-1);
    if (last?.style === span.style) last.text += span.text;
    else if (span.text !== "") all.push({ ...span });
  }
  return all;
}
