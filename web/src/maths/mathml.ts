// Formulas of TeX as MathML.

import katex from "katex";
import type { Formula } from "./formula";

/**
 * Definitions of macros could make a short source a long result. The macros of the library do not. For links, pictures and HTML
 * the library would show only the name of the command.
 */
const REFUSED =
  /\\(?:[gex]?def|(?:re)?newcommand|providecommand|(?:future)?let|global|long|href|url|includegraphics|html(?:Class|Id|Style|Data))(?![a-zA-Z])/;
const MAX_EXPAND = 1000;
/** The largest size in a formula, in em. */
const MAX_SIZE_EM = 20;
/** The browser lays out nested elements recursively. */
const MAX_DEPTH = 64;
const MAX_RESULT = 60_000;

/** Null if the source is erroneous, has a refused command or exceeds a limit. */
export function mathml({ tex, display }: Formula): string | null {
  if (REFUSED.test(tex)) return null;
  try {
    const markup = katex.renderToString(tex, {
      displayMode: display,
      output: "mathml",
      throwOnError: true,
      strict: false,
      trust: false,
      maxExpand: MAX_EXPAND,
      maxSize: MAX_SIZE_EM,
    });
    // Without the library's own element around it, and without styles, which the page's policy would report. In texts and values
    // the library escapes quotation marks.
    const math = markup.slice(markup.indexOf("<math"), markup.lastIndexOf("</math>") + "</math>".length).replace(/ style="[^"]*"/g, "");
    return math.length <= MAX_RESULT && depth(math) <= MAX_DEPTH ? math : null;
  } catch {
    return null;
  }
}

function depth(markup: string): number {
  let deepest = 0;
  let now = 0;
  for (const [sign] of markup.matchAll(/<\/|\/>|</g)) {
    now += sign === "<" ? 1 : -1;
    deepest = Math.max(deepest, now);
  }
  return deepest;
}
