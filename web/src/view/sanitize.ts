// Sanitizes the Markdown of agents in two independent steps: the renderer never emits raw HTML, and DOMPurify keeps
// only the elements listed below. The result is DOM nodes, never a string.

import DOMPurify from "dompurify";
import { Marked, type Token, type Tokens } from "marked";

const TAGS = [
  ...["p", "br", "hr", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li"],
  ...["h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "a", "img"],
];
const ATTRIBUTES = ["href", "src", "alt", "title", "start", "align", "target", "rel"];

const LINK = /^(https?:\/\/|mailto:)/i;
/**
 * A request for a remote image would show its server that the message was read. Only images that need no request are
 * shown.
 */
const IMAGE = /^(data:image\/(png|jpeg|gif|webp|avif);base64,)/i;

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => escape(text),
    link({ href, title, tokens }) {
      const words = this.parser.parseInline(tokens);
      if (!LINK.test(href)) return words;
      return `<a href="${escape(href)}"${title ? ` title="${escape(title)}"` : ""}>${words}</a>`;
    },
    image({ href, text }) {
      if (IMAGE.test(href)) return `<img src="${escape(href)}" alt="${escape(text)}">`;
      const words = escape(text || "image");
      return LINK.test(href) ? `<a href="${escape(href)}">${words}</a>` : words;
    },
    checkbox: ({ checked }) => (checked ? "\u2611 " : "\u2610 "),
  },
});

const purifier = DOMPurify();

purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") {
    if (!LINK.test(node.getAttribute("href") ?? "")) node.removeAttribute("href");
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
  // Elements that scroll sideways must be reachable by the keyboard.
  if (node.nodeName === "PRE" || node.nodeName === "TABLE") node.setAttribute("tabindex", "0");
  if (node.nodeName === "IMG" && !IMAGE.test(node.getAttribute("src") ?? "")) node.remove();
});

/** The message as HTML of its top-level blocks, so that a streaming message redraws only its last one. */
export function renderBlocks(markdown: string): string[] {
  const tokens = marked.lexer(markdown);
  placeHeadings(tokens);
  return tokens.filter((token) => token.type !== "space" && token.type !== "def").map((token: Token) => marked.parser([token]));
}

/** The page's own heading has level 1. The highest heading of a message gets level 2. */
function placeHeadings(tokens: Token[]): void {
  const headings: Tokens.Heading[] = [];
  marked.walkTokens(tokens, (token) => void (token.type === "heading" && headings.push(token as Tokens.Heading)));
  const highest = Math.min(...headings.map((heading) => heading.depth));
  for (const heading of headings) heading.depth = Math.min(heading.depth - highest + 2, 6);
}

export function sanitize(html: string): DocumentFragment {
  return purifier.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}
