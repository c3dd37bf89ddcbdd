// Renders Markdown as HTML. The HTML contains only elements of Markdown: HTML of the agent becomes text.

import { Marked, type MarkedExtension, type Token, type Tokens } from "marked";
import { strings } from "../strings";
import { IMAGE, LINK } from "./addresses";

export function escape(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

/**
 * The parser compares each delimiter of emphasis with the other delimiters of its paragraph. A paragraph with more
 * delimiters has no emphasis and no bare addresses, because its parse would block the page.
 */
const MAX_DELIMITERS = 1000;

let counted = "";
let crowded = false;

function isCrowded(paragraph: string): boolean {
  if (paragraph !== counted) {
    counted = paragraph;
    crowded = (paragraph.match(/[*_~]+/g)?.length ?? 0) > MAX_DELIMITERS;
  }
  return crowded;
}

const MARKDOWN: MarkedExtension = {
  gfm: true,
  tokenizer: {
    // `false` continues with the parser's own function.
    emStrong: (_, paragraph) => (isCrowded(paragraph) ? undefined : false),
    del: (_, paragraph) => (isCrowded(paragraph) ? undefined : false),
    // The parser calls `emStrong` for the same paragraph first.
    inlineText(rest) {
      if (!crowded) return false;
      const raw = /^[^][^\\<![`]*/.exec(rest)![0];
      return { type: "text", raw, text: raw, escaped: false };
    },
  },
  renderer: {
    html: ({ text }) => escape(text),
    // After the tag of a script, a code or a keyboard input, the parser takes the text for HTML and does not escape it.
    text: (token) => ("escaped" in token && token.escaped ? escape(token.text) : false),
    link({ href, title, tokens }) {
      const words = this.parser.parseInline(tokens);
      if (!LINK.test(href)) return words;
      return `<a href="${escape(href)}"${title ? ` title="${escape(title)}"` : ""}>${words}</a>`;
    },
    image({ href, text }) {
      if (IMAGE.test(href)) return `<img src="${escape(href)}" alt="${escape(text)}">`;
      const words = escape(text || strings.content.image);
      return LINK.test(href) ? `<a href="${escape(href)}">${words}</a>` : words;
    },
    // A header without words says nothing about its column.
    tablecell: ({ header, text }) => (header && text.trim() === "" ? "<td></td>" : false),
    checkbox: ({ checked }) => (checked ? "\u2611 " : "\u2610 "),
  },
};

/** A top-level block of a message: HTML, or the text of a code block. */
export type Block = { kind: "html"; html: string } | { kind: "code"; language: string; text: string };

/**
 * Renders the top-level blocks of a message, so that a streaming message redraws only its last one. `extensions` of the parser
 * add to Markdown.
 */
export function blocksOf(...extensions: MarkedExtension[]): (markdown: string) => Block[] {
  const marked = new Marked(MARKDOWN, ...extensions);
  return (markdown) => {
    try {
      return parse(marked, markdown);
    } catch {
      // The parser is recursive: lists and quotations of some thousand levels exceed its stack.
      return [{ kind: "code", language: "", text: markdown }];
    }
  };
}

export const renderBlocks = blocksOf();

function parse(marked: Marked, markdown: string): Block[] {
  const tokens = marked.lexer(markdown);
  placeHeadings(marked, tokens);
  return tokens.filter((token) => token.type !== "space" && token.type !== "def").map((token) => block(marked, token));
}

function block(marked: Marked, token: Token): Block {
  if (token.type !== "code") return { kind: "html", html: marked.parser([token]) };
  const { lang, text } = token as Tokens.Code;
  return { kind: "code", language: /^\S*/.exec(lang ?? "")![0], text };
}

/** The page's own heading has level 1. The highest heading of a message gets level 2. */
function placeHeadings(marked: Marked, tokens: Token[]): void {
  const headings: Tokens.Heading[] = [];
  marked.walkTokens(tokens, (token) => void (token.type === "heading" && headings.push(token as Tokens.Heading)));
  const highest = Math.min(...headings.map((heading) => heading.depth));
  for (const heading of headings) heading.depth = Math.min(heading.depth - highest + 2, 6);
}
