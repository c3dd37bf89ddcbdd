import { existsSync, readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const root = new URL("../../", import.meta.url);
const read = (path) => readFileSync(new URL(path, root), "utf8").replaceAll(/\/\*.*?\*\//gs, "");
const sheets = readdirSync(new URL("src", root), { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".css"));
const tokens = read("src/style/tokens.css");

test("every value of a style sheet is a token", () => {
  const defined = new Set([...tokens.matchAll(/^\s*(--[\w-]+):/gm)].map(([, name]) => name));
  // Set by the page: the width of a scroll bar.
  defined.add("--gutter");
  for (const sheet of sheets.filter((path) => !path.endsWith("tokens.css"))) {
    const text = read(`src/${sheet}`);
    const unknown = [...text.matchAll(/var\((--[\w-]+)/g)].map(([, name]) => name).filter((name) => !defined.has(name));
    expect(unknown, `${sheet} uses tokens that do not exist`).toEqual([]);
    expect(text.match(/#[\da-f]{3,8}\b|\b(rgb|hsl|oklch)\(/gi) ?? [], `${sheet} has colours of its own`).toEqual([]);
    expect(text.match(/font-size: [\d.]+px|font-weight: (?!400|600)\d+/g) ?? [], `${sheet} has type of its own`).toEqual([]);
  }
});

test("every token is used", () => {
  const all = sheets.map((path) => read(`src/${path}`)).join("\n");
  const names = [...tokens.matchAll(/^\s*(--[\w-]+):/gm)].map(([, name]) => name);
  expect([...new Set(names)].filter((name) => !all.includes(`var(${name})`) && !all.includes(`var(${name},`))).toEqual([]);
});

test("the style guide shows pictures that exist, and all of them", () => {
  const guide = readFileSync(new URL("STYLE.md", root), "utf8");
  const shown = [...guide.matchAll(/\((pictures\/[^)]+)\)/g)].map(([, path]) => path);
  expect(shown.filter((path) => !existsSync(new URL(path, root)))).toEqual([]);
  expect(shown.map((path) => path.slice(9)).sort()).toEqual(readdirSync(new URL("pictures", root)).sort());
});
