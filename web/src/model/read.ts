// Reads raw payloads, in which any member may be absent or have an unexpected type.

import type { ContentBlock, Raw } from "../api/types";
import { visible } from "./words";

export function record(value: unknown): Raw | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Raw) : null;
}

export function text(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

/** Text that names a thing or an action, in which no character may be invisible. */
export function line(value: unknown): string | null {
  return typeof value === "string" ? visible(value) : null;
}

export function number(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function records(value: unknown): Raw[] {
  return Array.isArray(value) ? value.filter((entry) => record(entry) !== null) : [];
}

export function blocks(value: unknown): ContentBlock[] {
  return records(value)
    .filter((entry) => typeof entry["type"] === "string")
    .map((entry) => ("resource" in entry ? { ...texts(entry), resource: texts(record(entry["resource"]) ?? {}) } : texts(entry)) as unknown as ContentBlock);
}

const TEXTS = ["text", "data", "mimeType", "uri", "name", "title"];

/** A member that is a text in the protocol and has another type is removed. */
function texts(entry: Raw): Raw {
  const wrong = TEXTS.filter((name) => Object.hasOwn(entry, name) && typeof entry[name] !== "string");
  return wrong.length === 0 ? entry : Object.fromEntries(Object.entries(entry).filter(([name]) => !wrong.includes(name)));
}
