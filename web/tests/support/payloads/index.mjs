// Hostile texts in classes. Each would run a script, open a dialog, send a request, change the page's address or
// disguise its meaning in a page that does not treat it as text.
//
// All texts are written for this project. `origin` names the specification or the behaviour that a class is about.
// Scripts call `alert`: the tests replace it, so that every call is reported.

import { MARKUP } from "./markup.mjs";
import { TEXT } from "./text.mjs";

export const CLASSES = [...MARKUP, ...TEXT];

/** Every payload of the classes. Each place shows each of them. */
export const PAYLOADS = CLASSES.flatMap(({ payloads }) => payloads);

/** The same for members that the gateway reads, which must be UTF-8. */
export const WELL_FORMED = PAYLOADS.map((payload) => payload.toWellFormed());

/** The payloads that are addresses as a whole. */
export const ADDRESSES = CLASSES.find(({ name }) => name === "addresses").payloads;

/** The payloads in parts that the gateway does not truncate: it keeps 2,048 bytes of an error of an agent. */
export const SHORT_PARTS = parts(WELL_FORMED, 2000);

/** `payloads` in parts with at most `limit` bytes. The words around a payload need 24 more. */
function parts(payloads, limit) {
  const found = [];
  let size = limit;
  payloads.forEach((payload, index) => {
    const own = new TextEncoder().encode(payload).length + 24;
    if (size + own > limit) {
      found.push({ from: index, payloads: [] });
      size = 0;
    }
    found.at(-1).payloads.push(payload);
    size += own;
  });
  return found;
}

/** Fields of one form: the gateway limits its properties to 128, and each payload is in two of them. */
export const FORM_FIELDS = 60;

/** Texts that are costly to parse, to nest or to lay out. Places for long texts show each of them. */
export const COSTLY = [
  "> ".repeat(4000) + "quote",
  "- ".repeat(4000) + "list",
  "1. ".repeat(3000) + "ordered",
  Array.from({ length: 300 }, (_, depth) => `${"  ".repeat(depth)}- item`).join("\n"),
  "[".repeat(20_000) + "x" + "]".repeat(20_000),
  "![".repeat(3000) + "x" + "](".repeat(3000),
  "*a_".repeat(20_000),
  "**a *b ".repeat(5000),
  "~~a~".repeat(10_000),
  "a " + "`".repeat(20_000) + "x",
  "<a ".repeat(10_000),
  "<!--".repeat(10_000),
  "&#".repeat(20_000),
  "|a".repeat(500) + "\n" + "|-".repeat(500) + "\n" + "|<b>".repeat(500),
  "<div>".repeat(5000) + "<img src=x onerror=alert(1)>",
  "Z\u0351\u036b\u0343\u0328".repeat(3000),
  "long".repeat(15_000),
  "$x$ ".repeat(15_000),
  "$a".repeat(20_000),
  "\\(".repeat(20_000),
  "$x$ " + "\n$$\n".repeat(10_000),
  "$$" + "\\frac1{".repeat(240) + "x" + "}".repeat(240) + "$$",
  "$$\\begin{matrix}" + "&\\\\".repeat(600) + "\\end{matrix}$$",
];
