import { expect, test } from "vitest";
import { type FileEntry, known, type SessionSummary } from "@acp-gateway/client";

// `tsc` checks this file too: an `@ts-expect-error` without an error does not compile.
test("a string of the API compares with the values of the document only", () => {
  const { type } = { type: "folder" } as FileEntry;
  expect(known(type) === "folder").toBe(true);
  // @ts-expect-error The API says "folder".
  expect(known(type) === "directory").toBe(false);
  // @ts-expect-error The same in a list.
  expect(["directory", "file"].includes(known(type))).toBe(false);

  const later = { type: "socket" } as FileEntry;
  expect(known(later.type)).toBe("socket");

  const { state } = { state: "waiting" } as SessionSummary;
  switch (known(state)) {
    // @ts-expect-error No session is blocked.
    case "blocked":
      throw new Error("unreachable");
    case "waiting":
      break;
  }
  const none = null as FileEntry["type"] | null;
  expect(known(none)).toBe(null);
});
