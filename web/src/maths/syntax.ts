// The formulas of Markdown, as an extension of its parser. A formula becomes an element with its source.

import type { MarkedExtension, Token, TokenizerThis, Tokens } from "marked";
import { escape } from "../view/renderBlocks";
import { formulaAt, type Formula } from "./formula";

/** The number of formulas of a message, and their length together. The remaining formulas stay text. */
export const MAX_FORMULAS = 300;
const MAX_TOTAL = 30_000;

/** The formulas by the parser of their message. */
const found = new WeakMap<object, { count: number; length: number }>();

/** Counts a formula. Returns whether the message may have it. */
function isOneMore(lexer: object, { raw }: Formula): boolean {
  const before = found.get(lexer) ?? { count: 0, length: 0 };
  if (before.count >= MAX_FORMULAS || before.length + raw.length > MAX_TOTAL) return false;
  found.set(lexer, { count: before.count + 1, length: before.length + raw.length });
  return true;
}

function inline(this: TokenizerThis, text: string, tokens: Token[] | Record<string, unknown>): Tokens.Generic | undefined {
  if (!/^(?:\$|\\[([])/.test(text)) return;
  const before = Array.isArray(tokens) ? ((tokens as Token[]).at(-1)?.raw ?? "") : "";
  const formula = formulaAt(text, before.slice(-1));
  return formula && isOneMore(this.lexer, formula) ? { type: "formula", raw: formula.raw } : undefined;
}

function block(this: TokenizerThis, text: string): Tokens.Generic | undefined {
  const [indent] = /^ {0,3}/.exec(text)!;
  const formula: Formula | null = formulaAt(text.slice(indent.length));
  if (!formula?.display) return;
  const rest = /^[ \t]*(?:\n|$)/.exec(text.slice(indent.length + formula.raw.length));
  if (!rest || !isOneMore(this.lexer, formula)) return;
  return { type: "formulaBlock", raw: indent + formula.raw + rest[0], formula: formula.raw };
}

/** The line of the paragraph that may be a formula. */
function blockStart(text: string): number | undefined {
  const end = text.search(/\n[ \t]*\n/);
  const line = /\n {0,3}(?:\$\$|\\\[)/.exec(end < 0 ? text : text.slice(0, end));
  return line ? line.index + 1 : undefined;
}

/** Masks formulas, so that a sign in a formula is no emphasis of the words around it. */
function withoutFormulas(paragraph: string): string {
  let masked = "";
  let from = 0;
  for (let at = paragraph.indexOf("$"); at >= 0; at = paragraph.indexOf("$", from)) {
    const raw = formulaAt(paragraph.slice(at), paragraph.slice(Math.max(at - 1, 0), at))?.raw;
    masked += paragraph.slice(from, at) + (raw ? "a".repeat(raw.length) : "$");
    from = at + (raw?.length ?? 1);
  }
  return masked + paragraph.slice(from);
}

const nonNegative = (index: number) => (index < 0 ? undefined : index);
const source = (raw: string) => `<span>${escape(raw)}</span>`;

export const SYNTAX: MarkedExtension = {
  extensions: [
    {
      name: "formula",
      level: "inline",
      // The parser's text ends at a backslash.
      start: (text) => nonNegative(text.indexOf("$")),
      tokenizer: inline,
      renderer: ({ raw }) => source(raw),
    },
    {
      name: "formulaBlock",
      level: "block",
      start: blockStart,
      tokenizer: block,
      renderer: (token) => `<p>${source(token["formula"] as string)}</p>`,
    },
  ],
  hooks: { emStrongMask: withoutFormulas },
};
