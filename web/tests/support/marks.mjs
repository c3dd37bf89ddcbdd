// Words around a payload that identify it and its place, and the search for them in a page.
//
// `wordsOf("ab", 7, payload)` is the payload between two words of letters and digits. A place shows the payload if
// both words are in one text in the place, with the payload between them.

import assert from "node:assert/strict";

const word = (place, index, end) => `zq${place}${String(index).padStart(3, "0")}${end}`;

export function wordsOf(place, index, payload) {
  return `${word(place, index, "a")}\n\n${payload}\n\n${word(place, index, "z")}`;
}

/** A payload at the start of its value: for places where a first character decides about the meaning. */
export function startOf(place, index, payload) {
  return `${payload}\n\n${word(place, index, "a")} ${word(place, index, "z")}`;
}

/** For terminals: `ESC \` and CAN end an open control sequence, and a new line ends an overwritten one. */
export function outputOf(place, index, payload) {
  return `${word(place, index, "a")}\n${payload}\u001b\\\u0018\n${word(place, index, "z")}\n`;
}

/**
 * Waits until the elements at `at` (below `root`) show every payload. `as` compares the text between the two words:
 *
 * - `text`: all visible characters of the payload
 * - `json`: the same, escaped as in JSON
 * - `start`: the same, for `startOf`
 * - `markdown`: any text, because Markdown has its own meaning; a picture has none
 * A payload that is null is not expected.
 * - `output`: nothing, because a terminal executes control sequences
 */
export async function assertShown(page, { place, payloads, from = 0, root = "", at, as = "text" }) {
  const asked = JSON.stringify({ place, payloads, from, root, at, as });
  // A print mounts the parts that are far from the visible area. A button shows the rest of a long text.
  const mountAll = () =>
    page.evaluate(() => {
      dispatchEvent(new Event("beforeprint"));
      for (const button of document.querySelectorAll("button")) if (button.textContent.startsWith("Show more (")) button.click();
    });
  const missing = () => mountAll().then(() => page.evaluate(missingIn, asked));
  const deadline = Date.now() + 30_000;
  let found = await missing();
  while (found.length > 0 && Date.now() < deadline) {
    await page.evaluate(() => new Promise(requestAnimationFrame));
    found = await missing();
  }
  assert.deepEqual(found.slice(0, 10), [], `${place}: ${found.length} not shown at ${root} ${at}`);
}

/** Runs in the page. The argument is JSON, because a lone surrogate does not pass in any other form. */
function missingIn(asked) {
  const { place, payloads, from, root, at, as } = JSON.parse(asked);
  const elements = [...document.querySelectorAll(root === "" ? at : at.split(", ").map((one) => `${root} ${one}`).join(", "))];
  const text = elements.map((element) => (element.matches("input, textarea") ? element.value : element.textContent)).join("\n");
  // The page shows a character without a glyph as its number. Characters without a glyph are not compared.
  const glyphs = (value) =>
    value
      .replace(/\[U\+[0-9A-F]{4,6}\]/g, "")
      .replace(/[\p{C}\p{Z}\s\ufffd\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu, "");
  const found = new Map();
  // The words behind a payload are beside each other.
  const pattern = as === "start" ? `([\\s\\S]*?)zq${place}(\\d{3})a\\s*zq${place}\\d{3}z` : `zq${place}(\\d{3})a([\\s\\S]*?)zq${place}\\1z`;
  for (const match of text.matchAll(new RegExp(pattern, "g"))) {
    const [index, inner] = as === "start" ? [match[2], match[1]] : [match[1], match[2]];
    found.set(Number(index), inner);
  }
  const isShown = (payload, inner) => {
    if (inner === undefined) return false;
    if (as === "output") return true;
    if (as === "markdown") return inner.trim() !== "" || payload.startsWith("![");
    if (as === "start") return glyphs(inner).endsWith(glyphs(payload));
    const expected = as === "json" ? JSON.stringify(`\n\n${payload}\n\n`).slice(1, -1) : payload;
    return glyphs(inner) === glyphs(expected);
  };
  return payloads.flatMap((payload, index) => {
    const inner = found.get(from + index);
    if (payload === null || isShown(payload, inner)) return [];
    return [`${from + index} ${JSON.stringify(payload).slice(0, 100)}: ${JSON.stringify(inner)?.slice(0, 100)}`];
  });
}
