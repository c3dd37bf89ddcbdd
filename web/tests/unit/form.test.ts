import { describe, expect, test } from "vitest";
import { contentOf, fieldErrors, fieldsOf, firstValues, type Control } from "../../src/model/form";

const SCHEMA = {
  type: "object",
  required: ["name", "colour", "guests"],
  properties: {
    name: { type: "string", title: "Your name", minLength: 1, maxLength: 40 },
    email: { type: "string", format: "email", description: "Where to write." },
    begins: { type: "string", format: "date-time" },
    colour: { type: "string", enum: ["red", "green"], default: "green" },
    size: { type: "string", oneOf: [{ const: "s", title: "Small", description: "For one" }, { title: "no value" }] },
    guests: { type: "integer", minimum: 1, maximum: 12, default: 2 },
    budget: { type: "number" },
    music: { type: "boolean", default: true },
    toppings: { type: "array", items: { type: "string", enum: ["cheese", "olives"] }, minItems: 1, maxItems: 2, default: ["olives", 3] },
    days: { type: "array", items: { anyOf: [{ const: "sat", title: "Saturday" }] } },
    other: { type: "tensor" },
  },
};

describe("the fields of a form", () => {
  const fields = fieldsOf(SCHEMA);
  const by = (name: string) => fields.find((field) => field.name === name)!;
  const kind = (name: string): Control["kind"] => by(name).control.kind;

  test("are made from what the agent's schema says", () => {
    expect(fields.map((field) => field.control.kind)).toEqual(
      ["text", "text", "text", "choice", "choice", "number", "number", "boolean", "choices", "choices", "json"],
    );
    expect(by("name")).toMatchObject({ label: "Your name", required: true, description: "1 to 40 characters." });
    expect(by("email").description).toBe("Where to write.");
    expect(by("guests").description).toBe("1 to 12.");
    expect(by("toppings").description).toBe("1 to 2 of these.");
    expect(by("size").control).toEqual({ kind: "choice", options: [{ value: "s", label: "Small", description: "For one" }] });
    expect(kind("other")).toBe("json");
  });

  test("begin with their defaults", () => {
    expect(firstValues(fields)).toMatchObject({ name: "", colour: "green", guests: "2", music: true, toppings: ["olives"], days: [] });
    const time = fieldsOf({ properties: { t: { type: "string", format: "date-time", default: "2026-11-22T10:30:00Z" } } });
    expect(contentOf(time, firstValues(time)).content).toEqual({ t: "2026-11-22T10:30:00.000Z" });
  });

  test("survive a schema of the wrong shape", () => {
    expect(fieldsOf(null)).toEqual([]);
    expect(fieldsOf({ properties: [1] })).toEqual([]);
    expect(fieldsOf({ properties: { a: 7, __proto__x: null }, required: "a" }).map((field) => field.control.kind)).toEqual(["json", "json"]);
  });

  test("show what would hide in their names", () => {
    const [field] = fieldsOf({ properties: { "a\u202eb": { type: "string", description: "x\u200by" } } });
    expect([field!.label, field!.description]).toEqual(["a[U+202E]b", "x[U+200B]y"]);
  });
});

describe("what was filled in", () => {
  const fields = fieldsOf(SCHEMA);
  const filled = (values: object) => contentOf(fields, { ...firstValues(fields), ...values });

  test("becomes the answer, with what is empty left out", () => {
    expect(filled({ name: "Ada", guests: "3", budget: "12.5", music: false, toppings: [], other: "[1]" })).toEqual({
      content: { name: "Ada", colour: "green", guests: 3, budget: 12.5, music: false, other: [1] },
      errors: {},
    });
  });

  test("is sent with what the gateway has to judge", () => {
    expect(filled({ name: "x".repeat(99), guests: "0.5", email: "nobody" }).content).toMatchObject({ guests: 0.5, email: "nobody" });
  });

  test("is held back when it cannot be sent", () => {
    const { errors } = filled({ name: "", guests: "many", other: "{", begins: "soon" });
    expect(errors).toEqual({
      name: "This is needed.",
      guests: "A number is expected.",
      other: "This is not JSON.",
      begins: "A date and a time are expected.",
    });
  });

  test("has its errors at its fields", () => {
    const odd = fieldsOf({ properties: { "a/b~c": { type: "string" }, toppings: { type: "array", items: { enum: ["x"] } } } });
    const problem = (...pointers: string[]) => ({ code: "invalid", errors: pointers.map((pointer) => ({ pointer, detail: `wrong ${pointer}` })) });
    expect(fieldErrors(problem("/content/a~1b~0c", "/content/toppings/0"), odd)).toEqual({
      "a/b~c": "Wrong /content/a~1b~0c.",
      toppings: "Wrong /content/toppings/0.",
    });
    expect(fieldErrors(problem("/content/unknown"), odd)).toBeNull();
    expect(fieldErrors(problem("/action"), odd)).toBeNull();
    expect(fieldErrors({ code: "request_resolved" }, odd)).toBeNull();
  });
});
