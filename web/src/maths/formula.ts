// Finds formulas in Markdown: `$…$`, `$$…$$`, `\(…\)` and `\[…\]`. Prices, variables of a shell and escaped brackets are text.

export interface Formula {
  /** The formula with its delimiters. */
  raw: string;
  tex: string;
  /** On a line of its own. */
  display: boolean;
}

/** Longer formulas stay text. */
const MAX_LENGTH = 2000;
/** The nested groups that may contain words. */
const MAX_GROUPS = 8;

/**
 * A formula contains no backtick, so that code is never a part of it, and no empty line. No character matches in two ways,
 * and the next delimiter ends the search, so that the time is linear.
 */
const FORMS = [
  { display: true, pattern: form("\\$\\$", "(?!\\$\\$)", "\\$\\$(?![\\w$])") },
  // As in Pandoc, no space is inside of the delimiters and no digit follows. `$(` and `${` belong to a shell.
  { display: false, pattern: form("\\$(?![\\s$])", "(?![$\\n])", "(?<!\\s)\\$(?!(?!th\\b)[\\w$({])") },
  { display: false, pattern: form("\\\\\\(", "(?!\\\\[()])", "\\\\\\)") },
  // An escaped address or another bracket follows the words of a link.
  { display: true, pattern: form("\\\\\\[", "(?!\\\\[[\\]])", "\\\\\\](?!\\\\?[([])") },
];

function form(open: string, inner: string, close: string): RegExp {
  return new RegExp(`^${open}((?:${inner}(?!\\n[ \\t]*\\n)(?:[^\\\\\`]|\\\\[^\`])){1,${MAX_LENGTH}})${close}`);
}

/** The formula at the start of the text. `before` is the text in front of it. */
export function formulaAt(text: string, before = ""): Formula | null {
  // `^$` is a regular expression.
  if (/[\w\\^]$/.test(before)) return null;
  for (const { display, pattern } of FORMS) {
    const match = pattern.exec(text);
    if (!match) continue;
    const [raw, tex] = match as unknown as [string, string];
    return isProse(tex, raw) ? null : { raw, tex, display };
  }
  return null;
}

/** Whether the text between two delimiters has words instead of a formula: two words, an amount, one word, or a note. */
function isProse(tex: string, raw: string): boolean {
  const words = withoutGroups(tex.replace(/\\(?:[a-zA-Z]+\*?|.)/gs, " \\ "));
  if (/[a-z]{2}[,;]?\s+[a-z]{2}/i.test(words) || /^\s*\d[\d.,]*\s+[a-z]{2}/i.test(words)) return true;
  const isPlain = !/[\\^_=<>+]/.test(words);
  if (raw.startsWith("$$")) return isPlain && /[a-z]{2}|^\W*$/i.test(words);
  return isPlain && (raw.startsWith("\\[") || /[a-z]{4}|^\W*$/i.test(words));
}

/** Words in braces belong to a command. */
function withoutGroups(tex: string): string {
  let rest = tex;
  for (let depth = 0; depth < MAX_GROUPS && rest.includes("{"); depth += 1) rest = rest.replace(/\{[^{}]*\}/g, ".");
  return rest;
}
