import { describe, expect, test } from "vitest";
import { plainText, styledLines } from "../../src/model/ansi";

const spans = (output: string) => styledLines(output).map((line) => line.map(({ text, style }) => (style === "" ? text : `${text}<${style.replaceAll("ansi-", "")}>`)));

describe("plain text", () => {
  test.each([
    ["colours", "\u001b[1;31mred\u001b[0m \u001b[Kend", "red end"],
    ["a title and a link", "\u001b]0;title\u0007a\u001b]8;;https://x\u001b\\b\u001b]8;;\u001b\\", "ab"],
    ["a line that was written over", "10%\r55%\r100%\r\nnext", "100%\nnext"],
    ["a shorter word over a longer", "loading\rdone", "doneing"],
    ["steps back", "abc\b\bX", "aXc"],
    ["a sequence that was cut", "a\u001b[3", "a"],
    ["what would hide", "a\u202eb\u0001", "a[U+202E]b[U+0001]"],
  ])("%s", (_, output, expected) => {
    expect(plainText(output)).toBe(expected);
  });
});

describe("styles", () => {
  test.each([
    ["colours and their end", "\u001b[31mred\u001b[0m \u001b[92mok\u001b[39m.", ["red<red>", " ", "ok<green>", "."]],
    ["several parameters", "\u001b[1;4;36mhead\u001b[22;24m rest", ["head<bold underline cyan>", " rest<cyan>"]],
    ["a reset without a parameter", "\u001b[31ma\u001b[mb", ["a<red>", "b"]],
    ["the palette", "\u001b[38;5;196ma\u001b[38;5;244mb\u001b[38;5;21mc\u001b[38;5;231md", ["a<red>", "b<grey>", "c<blue>", "d"]],
    ["red, green and blue", "\u001b[38;2;20;200;40ma\u001b[48;2;200;200;0;1mb", ["a<green>", "b<bold on-yellow>"]],
    ["colons", "\u001b[38:2::250:0:250ma\u001b[38:5:2mb\u001b[4:0mc", ["a<magenta>", "bc<green>"]],
    ["text on a ground", "\u001b[30;42m PASS \u001b[49m", [" PASS <on-green>"]],
    ["inverse text", "\u001b[7mx\u001b[27my", ["x<on-grey>", "y"]],
    ["an overwritten line", "\u001b[31m10%\r\u001b[32m1\u001b[0m", ["1<green>", "0%<red>"]],
    ["unknown parameters", "\u001b[73;999;38;9ma", ["a"]],
  ])("%s", (_, output, expected) => {
    expect(spans(output)).toEqual([expected]);
  });

  test("continue on the next line", () => {
    expect(spans("\u001b[33ma\r\nb\u001b[0m\nc")).toEqual([["a<yellow>"], ["b<yellow>"], ["c"]]);
  });

  test("a long output with a style for each character takes little time", () => {
    const began = performance.now();
    expect(styledLines("\u001b[1mx".repeat(40_000))[0]).toHaveLength(1);
    expect(styledLines("\u001b[31mx\u001b[32my".repeat(20_000))[0]).toHaveLength(40_000);
    expect(performance.now() - began).toBeLessThan(2000);
  });
});
