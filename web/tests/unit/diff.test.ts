import { expect, test } from "vitest";
import { diffLines } from "../../src/model/diff";

function shown(before: string | null, after: string): string[] {
  const marks = { same: " ", removed: "-", added: "+", skipped: "~" };
  return diffLines(before, after).map((line) => marks[line.kind] + line.text);
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
