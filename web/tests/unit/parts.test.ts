import { expect, test } from "vitest";
import { fenced, lastPart, openFence, partsOf } from "../../src/model/parts";
import { rawOutputOf, isPlain } from "../../src/model/output";
import type { ToolItem } from "@acp-gateway/client";

test.each([
  ["", 10, [""], 0],
  ["abc", 10, ["abc"], 0],
  ["abcdefgh", 3, ["abc", "def"], 2],
  ["aaaaaa\nbb\ncc", 8, ["aaaaaa\n", "bb\ncc"], 0],
  ["aaaaa\n\nb\nc", 9, ["aaaaa\n\n", "b\nc"], 0],
  // A line end in the first half would make a short part.
  ["a\nbbbbbbbbb", 6, ["a\nbbbb", "bbbbb"], 0],
  // No part ends within a character.
  ["aa😀b", 3, ["aa", "😀b"], 0],
])("the parts of %j with %i characters", (text, size, parts, rest) => {
  expect(partsOf(text, size, 2)).toEqual({ parts, rest });
});

test("the parts of a text that grows stay", () => {
  const text = "one two three\n".repeat(50);
  const whole = partsOf(text, 40, 100).parts;
  for (let length = 0; length <= text.length; length += 7) {
    const { parts } = partsOf(text.slice(0, length), 40, 100);
    expect(parts.slice(0, -1)).toEqual(whole.slice(0, parts.length - 1));
  }
});

test.each([
  ["abc", 5, 0],
  ["abcdef", 4, 2],
  ["ab\ncdefg", 7, 3],
  ["a😀bc", 3, 3],
])("the last part of %j with %i characters begins at %i", (text, size, from) => expect(lastPart(text, size)).toBe(from));

test.each([
  ["text", ""],
  ["```js\ncode", "```js"],
  ["```js\ncode\n```\ntext", ""],
  ["````\n```\n", "````"],
  ["~~~ a\n```\n", "~~~ a"],
  ["``` not ` a fence\n", ""],
])("the open fence of %j is %j", (markdown, fence) => expect(openFence(markdown)).toBe(fence));

test.each([
  ["```sh\nmake\n```", { language: "sh", text: "make" }],
  ["\n```\na\n\nb\n```\n", { language: "", text: "a\n\nb" }],
  ["~~~console\nls\n~~~", { language: "console", text: "ls" }],
  ["````\n```\n````", { language: "", text: "```" }],
  ["```\n```", { language: "", text: "" }],
  // The output of a program that has fences itself.
  ["```sh\nmake\n```\n\n```sh\nmake test\n```", null],
  ["text\n```sh\nmake\n```", null],
  ["```sh\nmake\n```\ntext", null],
  ["```sh\nmake", null],
  ["plain", null],
])("the code block %j is %j", (text, block) => expect(fenced(text)).toEqual(block));

test("the text of programs and files is plain, and other text is Markdown", () => {
  expect(["execute", "read", "search", "edit", "fetch", "think", "other"].filter(isPlain)).toEqual(["execute", "read", "search", "edit"]);
});

test.each([
  ["ls", { output: "ls", exitCode: null }],
  [{ output: "a", exit_code: 1 }, { output: "a", exitCode: 1 }],
  [{ stdout: "b", exitCode: 0 }, { output: "b", exitCode: 0 }],
  [{ exit_code: 0 }, null],
  [undefined, null],
])("the raw output %j of a command", (rawOutput, found) => {
  const item = { toolKind: "execute", content: [], rawOutput } as unknown as ToolItem;
  expect(rawOutputOf(item)).toEqual(found);
  expect(rawOutputOf({ ...item, toolKind: "other" })).toBe(null);
});
