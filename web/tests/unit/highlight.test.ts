import { expect, test } from "vitest";
import { highlighted } from "../../src/highlight/words";

const words = (language: string, text: string) => highlighted(language, text)?.map(({ text, kind }) => (kind === "" ? text : `${kind}<${text}>`));

test("words have their kinds", () => {
  expect(words("rust", 'fn main() { print("a"); } // end')).toEqual([
    ...["keyword<fn>", " ", "title<main>", "() { ", "title<print>", "(", 'string<"a">', "); } ", "comment<// end>"],
  ]);
});

test.each(["rs", "TS", "tsx", "sh", "console", "py", "html", "toml", "yml", "js", "jsx", "c++", "c#", "golang", "dockerfile", "diff", "json"])("%s is known", (language) => {
  expect(highlighted(language, "a = 1")).not.toBeNull();
});

test.each(["", "text", "__proto__", "constructor", "klingon"])("“%s” is unknown", (language) => {
  expect(highlighted(language, "a = 1")).toBeNull();
});

test("the text stays the same", () => {
  const text = "<b>&amp;</b>\r\n\t\u0000é 😀 `x` ${y}\n";
  for (const language of ["html", "js", "bash", "markdown", "rust", "yaml"]) {
    expect(highlighted(language, text)?.map((word) => word.text).join("")).toBe(text);
  }
});
