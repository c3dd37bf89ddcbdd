import { expect, test } from "vitest";
import { parseRoute } from "../../src/model/route";
import { duration, promptTitle, resourceName, stopWords } from "../../src/model/words";
import { visible } from "@acp-gateway/client/read";
import { shortPath } from "../../src/view/workingFolder";

test("what would hide in a title is shown", () => {
  expect(visible("rm \u202Etxt.exe\u0007 \u200Bx")).toBe("rm [U+202E]txt.exe[U+0007] [U+200B]x");
  expect(visible("plain, שלום, 日本\n\t")).toBe("plain, שלום, 日本\n\t");
});

test("paths in the working folder are short, and no other path pretends to be", () => {
  expect(shortPath("/w", "/w/src/a.rs")).toBe("src/a.rs");
  expect(shortPath("/w/", "/w/a")).toBe("a");
  for (const path of ["/w", "/w/", "/wide/a", "/etc/passwd", "/w/../etc/passwd"]) expect(shortPath("/w", path)).toBe(path);
  expect(shortPath(null, "/w/a")).toBe("/w/a");
});

test("durations and stop reasons in words", () => {
  expect(duration("2026-11-21T22:00:00.000Z", "2026-11-21T22:01:05.000Z")).toBe("1 min 5 s");
  expect(duration("2026-11-21T22:00:00.000Z", "2026-11-21T22:00:00.300Z")).toBe("under a second");
  expect(duration("2026-11-21T22:00:00.000Z", "2026-11-21T22:00:59.600Z")).toBe("1 min 0 s");
  expect(duration("2026-11-21T22:00:00.000Z", "2026-11-21T23:59:59.600Z")).toBe("2 h 0 min");
  expect(duration("2026-11-21T22:00:00.000Z", "2026-11-24T00:59:00.000Z")).toBe("2 days 2 h");
  expect(stopWords("cancelled", "person")).toBe("Stopped");
  expect(stopWords("cancelled", "silence")).toBe("Stopped: the agent sent nothing for too long");
  expect(stopWords("constructor", "constructor")).toBe("Ended (constructor)");
});

test("addresses", () => {
  expect(parseRoute("#/s/abc")).toEqual({ page: "session", sessionId: "abc", turn: null });
  expect(parseRoute("#/s/abc/t/d%20e")).toEqual({ page: "session", sessionId: "abc", turn: "d e" });
  expect(parseRoute("#/inbox")).toEqual({ page: "inbox" });
  expect(parseRoute("#/s/%")).toEqual({ page: "start" });
  expect(parseRoute("")).toEqual({ page: "start" });
});

test.each([
  ["\n  Fix the roof \nnow", "Fix the roof"],
  [" \n ", ""],
  ["word ".repeat(30), `${"word ".repeat(11).trim()}…`],
  ["é".repeat(200), `${"é".repeat(59)}…`],
])("the title of the prompt %j", (text, expected) => expect(promptTitle(text)).toBe(expected));

test.each([
  ["file:///w/a%20b.rs", "/w/a b.rs"],
  ["attachment:notes%2F1.md", "notes/1.md"],
  ["file://host/share", "file://host/share"],
  ["https://example.org/a%20b", "https://example.org/a%20b"],
  ["file:///w/%ff", "file:///w/%ff"],
])("the name of the resource %s", (uri, expected) => expect(resourceName(uri)).toBe(expected));
