import { describe, expect, test, vi } from "vitest";
import { isAllowedValue, MATHML_ATTRIBUTES, MATHML_TAGS } from "../../src/maths/allowed";
import { formulaAt } from "../../src/maths/formula";
import { inScript } from "../../src/maths/letters";
import { mathml } from "../../src/maths/mathml";
import { MAX_FORMULAS, SYNTAX } from "../../src/maths/syntax";
import { blocksOf, renderBlocks } from "../../src/view/renderBlocks";
import { MAY_HAVE_MATHS } from "../../src/view/useMaths";
import { PAYLOADS } from "../support/payloads/index.mjs";

const raw = String.raw;
const render = blocksOf(SYNTAX);
/** The longest time for the formulas of one message on a busy machine. */
const COSTLY_MS = 3000;

const decoded = (html: string) => html.replace(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code)));
const htmlOf = (text: string) => render(text).map((block) => (block.kind === "html" ? block.html : block.text)).join("\n");
/** The sources of the formulas of a message. */
const sources = (text: string) => [...htmlOf(text).matchAll(/<span>(.*?)<\/span>/gs)].map(([, source]) => decoded(source!));
const markup = (tex: string, display = false) => mathml({ raw: `$${tex}$`, tex, display });

describe("formulas", () => {
  test.each([
    ["the sum $x_1 + y_1$ is *not $a*b$ or* $c$", ["$x_1 + y_1$", "$a*b$", "$c$"]],
    [raw`\(a_1 * b\) and \(c * d_1\).`, [raw`\(a_1 * b\)`, raw`\(c * d_1\)`]],
    ["text:\n$$\nx\n= y\n- z\n$$\nmore", ["$$\nx\n= y\n- z\n$$"]],
    ["\\[\nx\n=\ny\n\\]", ["\\[\nx\n=\ny\n\\]"]],
    [raw`so \[E = mc^2\] and $$a = b$$ here`, [raw`\[E = mc^2\]`, "$$a = b$$"]],
    ["- one\n  $$\n  a\n  = b\n  $$\n- two $x$", ["$$\na\n= b\n$$", "$x$"]],
    ["1. We have\n\n   \\[\n   x^2 = 1\n   \\]\n", ["\\[\nx^2 = 1\n\\]"]],
    ["> $$\n> x + 1\n> $$", ["$$\nx + 1\n$$"]],
    ["| a |\n| - |\n| $x$ |", ["$x$"]],
    ["# The $n$th $x$-axis ($y$), **$z$** and [see $i$](https://ok.example)", ["$n$", "$x$", "$y$", "$z$", "$i$"]],
    [raw`$a$ costs \$5, $i<j$ and $\text{if } 2 \$ \text{ are left}$`, ["$a$", "$i<j$", raw`$\text{if } 2 \$ \text{ are left}$`]],
    [raw`$\text{the \textbf{very} long name}$`, [raw`$\text{the \textbf{very} long name}$`]],
    ["where: $x$, $3y$; $f: A \\to B$.", ["$x$", "$3y$", "$f: A \\to B$"]],
    [raw`$10 \bmod 3$, $O(n \log n)$, $\{1, 2\}$`, [raw`$10 \bmod 3$`, raw`$O(n \log n)$`, raw`$\{1, 2\}$`]],
  ])("are found: %j", (text, expected) => {
    expect(sources(text)).toEqual(expected);
    expect(MAY_HAVE_MATHS.test(text)).toBe(true);
  });

  test.each([
    ...["costs $5 and $10", "from $5-$10", "$5, then 10$.", "$1,000 + $2,000", "US$5 or CA$6$", "$5 and 10$ more", "($5/$10)"],
    ...["$HOME and $PATH", "$HOME/bin:$PATH", "$(date)-$(host)", "${A}/${B}", "echo $a$b", "$PATH$", "kill $$; echo $$", "$$ in bash is the PID; $$ again"],
    ...["`$x$`", "``$x$ ` $y$``", "```\n$x$\n$$y$$\n```", "    $$x^2$$", "$a `b$` c", "^foo$|^bar$"],
    ...[raw`\$x\$`, raw`\\(x\\)`, raw`\[text\](https://ok.example/a_b)`, raw`\[1\]`, raw`\[ \] task`, raw`main\(argc, argv\)`, raw`\(optional\)`, raw`\(see below\)`],
    ...["$x^2 + ", "$$\nx^2 + 1", raw`\(x^2`, raw`\[x^2 = 1`, "$$\na\n\nb\n$$", "$x\ny$", "$$$$", "$ x^2 $", "https://ok.example/$x^2$"],
    `$${"x+".repeat(1001)}1$`,
  ])("are not found, and the text is the same: %j", (text) => {
    expect(sources(text)).toEqual([]);
    expect(render(text)).toEqual(renderBlocks(text));
  });

  test("have a limit for a message", () => {
    expect(sources("$x$ ".repeat(MAX_FORMULAS + 5))).toHaveLength(MAX_FORMULAS);
    expect(sources(`$${"x+".repeat(900)}1$\n\n`.repeat(100)).join("").length).toBeLessThanOrEqual(30_000);
    expect(sources("$x$")).toEqual(["$x$"]);
  });

  test("of a message that arrives are text until they end", () => {
    const text = raw`Let $x^2$ be` + "\n\n$$\na = b\n$$\n";
    for (let end = 0; end < text.length; end += 1) {
      const found = sources(text.slice(0, end));
      expect(["", "$x^2$", "$x^2$$$\na = b\n$$"], text.slice(0, end)).toContain(found.join(""));
    }
  });

  test("do not change a message without them", () => {
    for (const text of PAYLOADS) {
      if (sources(text).length === 0) expect(render(text), text.slice(0, 200)).toEqual(renderBlocks(text));
      else expect(MAY_HAVE_MATHS.test(text), text.slice(0, 200)).toBe(true);
    }
  });
});

const ALL = [
  raw`\frac{a}{b}+\sqrt[3]{x}\sum_{i=1}^n\int\limits_0^1\binom nk\cfrac12\genfrac(]{2pt}{0}ab`,
  raw`\begin{aligned}a&=b\\[1em]c&=d\end{aligned}\begin{cases}1&x\\2&y\end{cases}\begin{array}{c|c}\hline a&b\\\hline\end{array}`,
  raw`\boxed{x}\cancel{y}\bcancel{z}\xcancel{w}\sout{a}\fbox{b}\angl{x}\phase{y}`,
  raw`\mathbb{R}\mathbf{x}\mathcal{L}\mathfrak{g}\mathsf{a}\mathtt{b}\mathit{c}\boldsymbol{x}\mathrm{d}\text{a b \textbf{c}}`,
  raw`\hat{x}\overbrace{a}^{b}\underline{c}\vec{x}\widehat{abc}\xrightarrow[a]{b}\left(\frac12\right]\big|\Bigg\{\overset{a}{b}`,
  raw`x\rule{1em}{2em}\mathrlap{x}\mathllap{y}\smash{a}\vphantom{b}\hphantom{c}\phantom{d}a\!b\,c\quad d\Huge x\tag{1}`,
  raw`\begin{CD}A@>a>>B\\@VVbV@AAcA\\C@=D\end{CD}\verb|a|\operatorname*{arg}_x\mathop{x}\limits_a\mathbin{x}\Set{x|y}\not=\iff`,
];

/** Attributes that the page removes: colours and the name of the namespace. */
const REMOVED = ["xmlns", "mathcolor", "mathbackground", "class", "encoding"];

describe("MathML", () => {
  test("has no elements and attributes besides those that are allowed or removed", () => {
    const formulas = PAYLOADS.flatMap(sources).flatMap((source) => formulaAt(source) ?? []);
    expect(formulas.length).toBeGreaterThan(15);
    const all = [...formulas.map(mathml), ...ALL.map((tex) => markup(tex, true))].filter((one) => one !== null);
    expect(all.length).toBeGreaterThan(ALL.length + 5);
    for (const one of all) {
      const rest = one.replace(/<\/?([a-z]+)((?: [a-z]+ ?="[^"<>]*")*)\/?>/g, (_, tag: string, attributes: string) => {
        expect([...MATHML_TAGS, "annotation"]).toContain(tag);
        for (const [, name] of attributes.matchAll(/ ([a-z]+) ?=/g)) expect([...MATHML_ATTRIBUTES, ...REMOVED]).toContain(name);
        return "";
      });
      expect(rest).not.toMatch(/[<>]/);
    }
  });

  test.each(ALL)("keeps all values of ordinary formulas: %s", (tex) => {
    const attributes = [...markup(tex, true)!.matchAll(/ ([a-z]+) ?="([^"]*)"/g)].filter(([, name]) => !REMOVED.includes(name!));
    for (const [, name, value] of attributes) expect(isAllowedValue(name!, value!), `${name}=${value}`).toBe(true);
  });

  test.each([
    ...[["href", "https://ok.example"], ["style", "color: red"], ["class", "a"], ["id", "a"], ["mathcolor", "red"], ["xlink:href", "a"]],
    ...[["voffset", "-40em"], ["voffset", "20em"], ["lspace", "-2em"], ["width", "99em"], ["width", "9e9em"], ["width", "1000%"], ["height", "9cm"], ["width", ""], ["columnspacing", "1em 99em"]],
    ...[["notation", "url(x)"], ["mathvariant", '"'], ["__proto__", "1em"], ["width", "1__proto__"]],
  ] as [string, string][])("does not keep %s=%s", (name, value) => {
    expect(isAllowedValue(name, value)).toBe(false);
  });

  test.each([
    ...[raw`\frac{1`, raw`\unknown`, "}", "x^2^3", raw`\begin{a}`, raw`\def\a{x}\a`, raw`\newcommand\a{x}\a`, raw`\let\a=b`, raw`\href{https://ok.example}{x}`],
    ...[raw`\url{a}`, raw`\includegraphics{https://ok.example/a}`, raw`\htmlStyle{color:red}{x}`, `${"x^{".repeat(100)}x${"}".repeat(100)}`],
    ...["{".repeat(2000), `\\begin{matrix}${"&".repeat(1900)}\\end{matrix}`, raw`\iff`.repeat(500)],
  ])("does not exist for an erroneous, refused or too large formula: %s", (tex) => {
    const warn = vi.spyOn(console, "warn");
    expect(markup(tex)).toBeNull();
    expect(warn).not.toHaveBeenCalled();
  });

  test("is as deep as its elements", () => {
    expect(markup(raw`a\kern1em`.repeat(200))).toContain("<mspace");
  });

  test("has no style", () => {
    expect(markup(raw`\fcolorbox{red}{blue}{x}\pmb{y}\text{ style="a"}`)).not.toContain(' style="');
  });

  test("of the longest formulas of a message takes a limited time", () => {
    const begun = performance.now();
    for (const part of ["x^2+", raw`\pmod1`, raw`\dots `, raw`\KaTeX`, raw`\neq `, raw`\mathchoice1234`]) {
      for (let count = 0; count < 3; count += 1) markup(part.repeat(2000 / part.length), true);
    }
    expect(performance.now() - begun).toBeLessThan(COSTLY_MS);
  });
});

test("letters of a script are characters of Unicode", () => {
  expect(inScript("double-struck", "ARz1")).toBe("𝔸ℝ𝕫𝟙");
  expect(inScript("script", "ALe")).toBe("𝒜ℒℯ");
  expect(inScript("fraktur", "gC1")).toBe("𝔤ℭ1");
  expect(inScript("bold", "x")).toBeNull();
  expect(inScript("constructor", "x")).toBeNull();
});
