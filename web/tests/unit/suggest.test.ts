import type { FileEntry } from "@acp-gateway/client";
import { describe, expect, test } from "vitest";
import { bestFiles, commandsLike, mentioned, typedAt } from "../../src/model/suggest";

describe("what is typed at the caret", () => {
  test.each([
    ["/he|", { kind: "command", query: "he", from: 0 }],
    ["/|", { kind: "command", query: "", from: 0 }],
    ["/help |", null],
    ["a /he|", null],
    ["look at @src/ma|", { kind: "file", query: "src/ma", from: 8 }],
    ["@|", { kind: "file", query: "", from: 0 }],
    ["@a| and more", { kind: "file", query: "a", from: 0 }],
    ["mail me@example.org|", null],
    ["@a b|", null],
    ["|", null],
    ['see @"|', { kind: "file", query: "", from: 4 }],
    ['see @"my fi|', { kind: "file", query: "my fi", from: 4 }],
    ['see @"my dir/a b|" too', { kind: "file", query: "my dir/a b", from: 4 }],
    ['see @"my file.txt" |', null],
  ])("%s", (marked, expected) => expect(typedAt(marked.replace("|", ""), marked.indexOf("|"))).toEqual(expected));
});

const commands = ["help", "plan", "slow", "explain", "settings"].map((name) => ({ name, description: "", hint: null }));
const names = (query: string) => commandsLike(commands, query).map((command) => command.name);

test("commands that begin with the text are first, then similar ones", () => {
  expect(names("pl")).toEqual(["plan", "explain"]);
  expect(names("sl")).toEqual(["slow"]);
  expect(names("stgs")).toEqual(["settings"]);
  expect(names("")).toHaveLength(5);
});

test("a whole command has no suggestions", () => {
  expect(names("plan")).toEqual([]);
});

test("the best files are first, and only files and folders", () => {
  const files = [
    { path: "docs/main-page.md", type: "file" },
    { path: "src/main.rs", type: "file" },
    { path: "src/main.rs.link", type: "link" },
    { path: "src/my main.rs", type: "file" },
    { path: "main.rs", type: "file" },
  ] as FileEntry[];
  expect(bestFiles(files, "main.rs").map((file) => file.path)).toEqual(["main.rs", "src/main.rs", "src/my main.rs", "docs/main-page.md"].slice(0, 3));
});

test("folders are first, and all is sorted by name", () => {
  const entries = (...paths: string[]) => paths.map((path) => (path.endsWith("/") ? { path: path.slice(0, -1), type: "folder" } : { path, type: "file" })) as FileEntry[];
  const paths = (query: string, ...of: string[]) => bestFiles(entries(...of), query).map((file) => file.path);
  expect(paths("", "b.txt", "zoo/", "a10.txt", "a9.txt", "my dir/")).toEqual(["my dir", "zoo", "a9.txt", "a10.txt", "b.txt"]);
  expect(paths("src/", "src/z.rs", "src/a/", "src/b.rs")).toEqual(["src/a", "src/b.rs", "src/z.rs"]);
  expect(paths("src", "lib/src.rs", "src/", "src/main.rs")[0]).toBe("src");
  expect(paths("", 'a "b" c.txt', "a b.txt")).toEqual(["a b.txt"]);
});

test("a message names the files that were chosen and are still in it", () => {
  const known = new Set(["a.rs", "src/b.rs", "c.rs"]);
  expect(mentioned("see @a.rs and\n@src/b.rs but not x@c.rs", known)).toEqual(["a.rs", "src/b.rs"]);
  expect(mentioned("see @a.rsx @d.rs", known)).toEqual([]);
  expect(mentioned('see @"my dir/a b.txt" and @"c.rs', new Set(["my dir/a b.txt", "c.rs", "b.txt"]))).toEqual(["my dir/a b.txt"]);
});
