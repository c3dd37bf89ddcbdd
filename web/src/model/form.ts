// Forms of agents: fields from the schema, and an answer from the input. The gateway validates the answer. This file
// checks only the conditions for sending it.

import type { Problem, Raw } from "@acp-gateway/client";
import { line, number, record, records, text, visible } from "@acp-gateway/client/read";
import { strings } from "../strings";
import { sentence } from "./explain";

export interface Choice {
  value: string;
  label: string;
  description: string | null;
}

export type Control =
  | { kind: "text"; format: string | null; long: boolean }
  | { kind: "number"; whole: boolean; min: number | null; max: number | null }
  | { kind: "boolean" }
  | { kind: "choice"; options: Choice[] }
  | { kind: "choices"; options: Choice[] }
  | { kind: "json" };

export interface Field {
  name: string;
  label: string;
  /** The agent's description, and the constraints of the value. */
  description: string | null;
  required: boolean;
  control: Control;
  first: Value;
}

export type Value = string | boolean | string[];
export type Values = Record<string, Value>;

/** From so many characters on a text has more than one line. */
const LONG = 200;

export function fieldsOf(schema: unknown): Field[] {
  const properties = record(record(schema)?.["properties"]) ?? {};
  const required = record(schema)?.["required"];
  return Object.entries(properties).map(([name, property]) => {
    const raw = record(property) ?? {};
    const control = controlOf(raw);
    return {
      name,
      label: line(raw["title"]) ?? visible(name),
      description: [line(raw["description"]), bounds(raw, control)].filter(Boolean).join(" ") || null,
      required: Array.isArray(required) && required.includes(name),
      control,
      first: firstOf(raw["default"], control),
    };
  });
}

export function firstValues(fields: Field[]): Values {
  return Object.fromEntries(fields.map((field) => [field.name, field.first]));
}

function controlOf(raw: Raw): Control {
  switch (raw["type"]) {
    case "string": {
      const options = choices(raw["oneOf"], raw["enum"]);
      if (options) return { kind: "choice", options };
      return { kind: "text", format: text(raw["format"]), long: (number(raw["maxLength"]) ?? 0) > LONG };
    }
    case "number":
    case "integer":
      return { kind: "number", whole: raw["type"] === "integer", min: number(raw["minimum"]), max: number(raw["maximum"]) };
    case "boolean":
      return { kind: "boolean" };
    case "array": {
      const items = record(raw["items"]);
      const options = choices(items?.["anyOf"] ?? items?.["oneOf"], items?.["enum"]);
      return options ? { kind: "choices", options } : { kind: "json" };
    }
    default:
      return { kind: "json" };
  }
}

function choices(titled: unknown, plain: unknown): Choice[] | null {
  if (Array.isArray(titled)) {
    return records(titled).flatMap((entry) => {
      const value = text(entry["const"]);
      return value === null ? [] : [{ value, label: line(entry["title"]) ?? visible(value), description: line(entry["description"]) }];
    });
  }
  if (!Array.isArray(plain)) return null;
  return plain.filter((value) => typeof value === "string").map((value) => ({ value, label: visible(value), description: null }));
}

function firstOf(value: unknown, control: Control): Value {
  switch (control.kind) {
    case "boolean":
      return value === true;
    case "choices":
      return Array.isArray(value) ? value.filter((entry) => typeof entry === "string") : [];
    case "number":
      return typeof value === "number" ? String(value) : "";
    case "json":
      return value === undefined ? "" : JSON.stringify(value);
    case "text":
      return control.format === "date-time" ? localTime(text(value)) : (text(value) ?? "");
    case "choice":
      return text(value) ?? "";
  }
}

function bounds(raw: Raw, control: Control): string | null {
  const range = (from: number | null, to: number | null, what: string) => {
    if (from !== null && to !== null) return strings.questions.between(from, to, what);
    if (from !== null) return strings.questions.atLeast(from, what);
    return to === null ? null : strings.questions.atMost(to, what);
  };
  switch (control.kind) {
    case "text":
      return range(number(raw["minLength"]), number(raw["maxLength"]), strings.questions.characters);
    case "number":
      return range(control.min, control.max, "");
    case "choices":
      return range(number(raw["minItems"]), number(raw["maxItems"]), strings.questions.ofThese);
    case "json":
      return strings.questions.asJson;
    default:
      return null;
  }
}

export interface Filled {
  content: Raw;
  /** By the name of the field. */
  errors: Record<string, string>;
}

/** The content of the answer, without empty fields. */
export function contentOf(fields: Field[], values: Values): Filled {
  const content: Raw = {};
  // Without a prototype, a field may have any name.
  const errors: Record<string, string> = Object.create(null);
  for (const field of fields) {
    const value = values[field.name] ?? field.first;
    if (value === "" || (Array.isArray(value) && value.length === 0 && !field.required)) {
      if (field.required) errors[field.name] = strings.questions.isNeeded;
      continue;
    }
    try {
      // A name such as __proto__ is a field like any other.
      Object.defineProperty(content, field.name, { value: valueOf(field.control, value), enumerable: true, configurable: true, writable: true });
    } catch (reason) {
      errors[field.name] = reason instanceof Error ? reason.message : String(reason);
    }
  }
  return { content, errors };
}

function valueOf(control: Control, value: Value): unknown {
  if (typeof value !== "string") return value;
  switch (control.kind) {
    case "number": {
      const parsed = Number(value);
      if (!Number.isFinite(parsed)) throw new Error(strings.questions.notNumber);
      return parsed;
    }
    case "json":
      try {
        return JSON.parse(value);
      } catch {
        throw new Error(strings.questions.notJson);
      }
    case "text": {
      if (control.format !== "date-time") return value;
      const time = new Date(value);
      if (Number.isNaN(time.getTime())) throw new Error(strings.questions.notTime);
      return time.toISOString();
    }
    default:
      return value;
  }
}

/** As a field for date and time has it: this browser's time, without a zone. */
function localTime(value: string | null): string {
  const time = new Date(value ?? "");
  if (Number.isNaN(time.getTime())) return "";
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** The errors from the gateway by the name of the field; null if the problem does not concern a field. */
export function fieldErrors(problem: Problem, fields: Field[]): Record<string, string> | null {
  const found: Record<string, string> = Object.create(null);
  for (const { pointer, detail } of problem.errors ?? []) {
    const name = /^\/content\/([^/]*)/.exec(pointer ?? "")?.[1]?.replaceAll("~1", "/").replaceAll("~0", "~");
    if (name === undefined || !fields.some((field) => field.name === name)) return null;
    found[name] ??= visible(sentence(detail));
  }
  return Object.keys(found).length > 0 ? found : null;
}
