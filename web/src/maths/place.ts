// Puts formulas into the sanitized HTML of a message. Their MathML comes from the library's string through DOMPurify, with a
// list of its own, which contains no HTML: not even a text in a formula can contain an element of HTML.

import { purifier } from "../view/sanitize";
import { isAllowedValue, MATHML_ATTRIBUTES, MATHML_TAGS } from "./allowed";
import { arrange } from "./arrange";
import { formulaAt } from "./formula";
import { mathml } from "./mathml";

const isMathml = (node: Element) => node.namespaceURI === "http://www.w3.org/1998/Math/MathML";

purifier.addHook("uponSanitizeAttribute", (node, attribute) => {
  if (isMathml(node) && !isAllowedValue(attribute.attrName, attribute.attrValue)) attribute.keepAttr = false;
});

purifier.addHook("afterSanitizeAttributes", (node) => {
  // Nested sizes multiply.
  if (isMathml(node) && node.parentElement?.closest("[mathsize]")) node.removeAttribute("mathsize");
});

export function sanitizeMathml(markup: string): DocumentFragment {
  return purifier.sanitize(markup, {
    ALLOWED_TAGS: ["#text", ...MATHML_TAGS],
    ALLOWED_ATTR: MATHML_ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    // Elements that are not in the list vanish with their text, as the source in the annotation does.
    KEEP_CONTENT: false,
    RETURN_DOM_FRAGMENT: true,
  });
}

/** The formulas that were shown last, so that a message that arrives does not render all of its formulas again. */
const shown = new Map<string, DocumentFragment | null>();
const MAX_SHOWN = 500;

function formulaOf(source: string): DocumentFragment | null {
  let formula = shown.get(source);
  if (formula === undefined) formula = rendered(source);
  else shown.delete(source);
  shown.set(source, formula);
  if (shown.size > MAX_SHOWN) shown.delete(shown.keys().next().value!);
  return formula;
}

function rendered(source: string): DocumentFragment | null {
  const formula = formulaAt(source);
  const markup = formula?.raw === source ? mathml(formula) : null;
  if (markup === null) return null;
  const fragment = sanitizeMathml(markup);
  if (fragment.childElementCount !== 1) return null;
  arrange(fragment);
  // Elements that scroll sideways must be reachable by the keyboard.
  if (formula!.display) fragment.firstElementChild!.setAttribute("tabindex", "0");
  return fragment;
}

/** Replaces the sources of formulas. An erroneous formula stays its source. */
export function placeFormulas(html: DocumentFragment): DocumentFragment {
  for (const place of html.querySelectorAll("span")) {
    const source = place.textContent;
    place.replaceWith(formulaOf(source)?.cloneNode(true) ?? source);
  }
  return html;
}
