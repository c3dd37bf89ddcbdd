import { expect, test } from "vitest";
import { diffLines, sideBySide, textOf } from "../../src/model/diff";

function shown(before: string | null, after: string): string[] {
  const marks = { same: " ", removed: "-", added: "+", skipped: "~" };
  return diffLines(before, after).map((line) => marks[line.kind] + textOf(line));
}

test("a new file is all added", () => {
  expect(shown(null, "a\nb\n")).toEqual(["+a", "+b"]);
});

test("only what differs is marked", () => {
  expect(shown("a\nb\nc\n", "a\nB\nc\nd\n")).toEqual([" a", "-b", "+B", " c", "+d"]);
});

test("long unchanged stretches are folded", () => {
  const lines = Array.from({ length: 40 }, (_, index) => `line ${index}`);
  const changed = lines.with(20, "new");
  const result = shown(lines.join("\n"), changed.join("\n"));
  expect(result[0]).toBe("~17 unchanged lines");
  expect(result.at(-1)).toBe("~16 unchanged lines");
  expect(result).toContain("-line 20");
  expect(result).toContain("+new");
});

test("a change too large to compare is shown as replaced", () => {
  const before = Array.from({ length: 2000 }, (_, index) => `a${index}`).join("\n");
  const after = Array.from({ length: 2000 }, (_, index) => `b${index}`).join("\n");
  const lines = diffLines(before, after);
  expect(lines).toHaveLength(4000);
  expect(lines[0]?.kind).toBe("removed");
  expect(lines.at(-1)?.kind).toBe("added");
});

test("a change too large to compare takes little time", () => {
  const text = (from: number) => Array.from({ length: 20_000 }, (_, index) => `${(index * from) % 7919}`).join("\n");
  const began = performance.now();
  diffLines(text(3), text(5));
  expect(performance.now() - began).toBeLessThan(2000);
});

function marked(before: string, after: string): string[] {
  return diffLines(before, after).map((line) => line.parts.map(({ text, changed }) => (changed ? `[${text}]` : text)).join(""));
}

test("the changed words of a similar line are marked", () => {
  expect(marked("const limit = 20;\n", "const limit = 30;\n")).toEqual(["const limit = [20];", "const limit = [30];"]);
});

test("lines that are not similar have no marks", () => {
  expect(marked("alpha beta\n", "return null;\n")).toEqual(["alpha beta", "return null;"]);
});

test("long lines have no marks", () => {
  const line = "word ".repeat(200);
  expect(marked(`${line}a\n`, `${line}b\n`)).toEqual([`${line}a`, `${line}b`]);
});

test("side by side, changed lines are next to the lines that they replace", () => {
  const rows = sideBySide(diffLines("a\nb\nc\n", "a\nB\nB2\nc\n"));
  const sides = rows.map(({ left, right }) => [left && textOf(left), right && textOf(right)]);
  expect(sides).toEqual([["a", "a"], ["b", "B"], [null, "B2"], ["c", "c"]]);
});
