// Replaces the attributes and elements that MathML Core does not have. All browsers get the result, so that no frame and no
// line appears twice.

import { inScript } from "./letters";

/** Changes the elements of a formula so that the style sheet can show its letters, columns, lines and frames. */
export function arrange(formula: DocumentFragment): void {
  for (const element of formula.querySelectorAll("[mathvariant]")) changeLetters(element);
  for (const table of formula.querySelectorAll("mtable")) changeTable(table);
  for (const frame of formula.querySelectorAll("menclose")) changeFrame(frame);
}

function changeLetters(element: Element): void {
  if (element.childElementCount > 0) return;
  const text = inScript(element.getAttribute("mathvariant")!, element.textContent);
  if (text !== null) element.replaceChildren(text);
}

/** A table has lists for its columns and rows. A cell gets its own member. */
function changeTable(table: Element): void {
  const [aligns, columnLines, rowLines] = ["columnalign", "columnlines", "rowlines"].map((name) => {
    const list = table.getAttribute(name);
    table.removeAttribute(name);
    return list ? list.split(" ") : [];
  }) as [string[], string[], string[]];
  const isTight = table.getAttribute("columnspacing")?.startsWith("0em") ?? false;
  [...table.children].forEach((row, y) =>
    [...row.children].forEach((cell, x) => {
      const set = (name: string, value: string | undefined) => value && cell.setAttribute(name, value);
      set("columnalign", aligns[x]);
      set("columnlines", columnLines[x]);
      set("rowlines", rowLines[y]);
      if (isTight) set("columnspacing", "0em");
    }),
  );
}

function changeFrame(frame: Element): void {
  const row = document.createElementNS(frame.namespaceURI, "mrow");
  row.setAttribute("notation", frame.getAttribute("notation") ?? "");
  row.append(...frame.childNodes);
  frame.replaceWith(row);
}
