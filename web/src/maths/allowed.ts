// The elements and attributes of the library's MathML that the page keeps: no link, picture, style, colour or source, and no
// size that reaches other text.

export const MATHML_TAGS = [
  ...["math", "semantics", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mroot"],
  ...["msub", "msup", "msubsup", "munder", "mover", "munderover", "mtable", "mtr", "mtd"],
  ...["menclose", "mstyle", "mpadded", "mphantom"],
];

/** The attributes whose values are words or numbers. */
const WORDS = [
  ...["display", "displaystyle", "scriptlevel", "mathvariant", "accent", "accentunder", "fence", "separator", "stretchy", "largeop"],
  ...["movablelimits", "columnalign", "columnlines", "rowlines", "notation", "linebreak"],
];

/** The attributes whose values are lengths. */
const LENGTHS = [
  ...["width", "height", "depth", "lspace", "rspace", "voffset", "minsize", "maxsize", "mathsize", "linethickness"],
  ...["columnspacing", "rowspacing"],
];

export const MATHML_ATTRIBUTES = [...WORDS, ...LENGTHS];

const MAX_EM = 20;
/** The negative space of `\!`, of laps and of raised parts. */
const MIN_EM = -1;
const MAX_OFFSET_EM = 1;
const EM: Record<string, number> = { "": 1, em: 1, ex: 0.5, mu: 1 / 18, pt: 0.1, px: 0.1 };

export function isAllowedValue(name: string, value: string): boolean {
  if (WORDS.includes(name)) return /^[\w -]*$/.test(value);
  return LENGTHS.includes(name) && value.split(" ").every((one) => isAllowedLength(name, one));
}

function isAllowedLength(name: string, value: string): boolean {
  if (value === "100%" || value === "50%" || value === "-1width" || value === "-0.5width") return true;
  const [, size, unit] = /^([+-]?(?:\d+\.?\d*|\.\d+))([a-z]*)$/.exec(value) ?? [];
  const em = Number(size) * (EM[unit ?? "?"] ?? NaN);
  return em >= MIN_EM && em <= (name === "voffset" ? MAX_OFFSET_EM : MAX_EM);
}
