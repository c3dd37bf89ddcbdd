// Reads raw payloads, in which any member may be absent or have an unexpected type.

import type { ContentBlock, Raw } from "../types.js";

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

/** The entry of a table with this key. Unlike an index, it does not find the members that every object has. */
export function lookup<T>(table: Record<string, T> | undefined, key: unknown): T | undefined {
  return table && Object.hasOwn(table, String(key)) ? table[String(key)] : undefined;
}

/**
 * Controls, directions, fillers, separators, tags and variation selectors. Joiners, and the selectors for emoji, are
 * part of common writing.
 */
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

/**
 * Makes invisible characters visible: characters that change the reading order, or have no glyph. In a path or a title
 * they can disguise a dangerous action.
 */
export function visible(text: string): string {
  return text.replace(HIDDEN, (hidden) => `[U+${hidden.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}]`);
}
