// Sanitizes the Markdown of agents in the second of two independent steps: the renderer never emits HTML of the agent,
// and DOMPurify keeps only the elements listed below. The result is DOM nodes, never a string.

import DOMPurify from "dompurify";
import { IMAGE, LINK } from "./addresses";

const TAGS = [
  ...["p", "br", "hr", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li"],
  ...["h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "a", "img"],
  // The source of a formula.
  "span",
];
const ATTRIBUTES = ["href", "src", "alt", "title", "start", "align", "target", "rel"];

/** Characters of a cell that has a column of its own width. */
const LONG_CELL = 30;

/** The only one: the page's policy permits one policy of Trusted Types for it. */
export const purifier = DOMPurify();

purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") {
    if (!LINK.test(node.getAttribute("href") ?? "")) node.removeAttribute("href");
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
  // Elements that scroll sideways must be reachable by the keyboard.
  if (node.nodeName === "PRE" || node.nodeName === "TABLE") node.setAttribute("tabindex", "0");
  // A table scrolls, so that a text needs no narrow column.
  if (node.nodeName === "TD" && (node.textContent ?? "").length > LONG_CELL) node.setAttribute("data-long", "");
  if (node.nodeName === "IMG" && !IMAGE.test(node.getAttribute("src") ?? "")) node.remove();
});

export function sanitize(html: string): DocumentFragment {
  return purifier.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}
