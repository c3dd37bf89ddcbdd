import { describe, expect, test } from "vitest";
import { takesKey } from "../../src/model/signin";

describe("a method of a sign-in", () => {
  test("takes an API key if the agent marks it so", () => {
    expect(takesKey({ id: "gemini-api-key", _meta: { "api-key": { provider: "google" } } })).toBe(true);
    expect(takesKey({ id: "api-key", _meta: { "api-key": null } })).toBe(true);
  });

  test("takes none otherwise", () => {
    for (const method of [null, "api-key", {}, { id: "api-key" }, { _meta: [] }, { _meta: { gateway: {} } }]) {
      expect(takesKey(method)).toBe(false);
    }
  });
});
