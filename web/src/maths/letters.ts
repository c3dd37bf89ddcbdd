// Letters of a formula in a script of their own. MathML Core has no attribute for them: browsers show these characters of Unicode.

/** The first characters of the capital letters, the small letters and the digits. */
const SCRIPTS: Record<string, [number, number, number?]> = {
  "double-struck": [0x1d538, 0x1d552, 0x1d7d8],
  script: [0x1d49c, 0x1d4b6],
  "bold-script": [0x1d4d0, 0x1d4ea],
  fraktur: [0x1d504, 0x1d51e],
  "bold-fraktur": [0x1d56c, 0x1d586],
};

/** Characters that are older than their script. */
const OLDER: Record<string, Record<string, string>> = {
  "double-struck": { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
  script: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  fraktur: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" },
};

/** Null if the style sheet shows the variant. */
export function inScript(variant: string, text: string): string | null {
  if (!Object.hasOwn(SCRIPTS, variant)) return null;
  const [capital, small, digit] = SCRIPTS[variant]!;
  const shift = (letter: string, first: string, to: number) => String.fromCodePoint(letter.charCodeAt(0) - first.charCodeAt(0) + to);
  return text.replace(/[A-Za-z0-9]/g, (letter) => {
    const older = OLDER[variant]?.[letter];
    if (older !== undefined) return older;
    if (letter >= "a") return shift(letter, "a", small);
    if (letter >= "A") return shift(letter, "A", capital);
    return digit === undefined ? letter : shift(letter, "0", digit);
  });
}
