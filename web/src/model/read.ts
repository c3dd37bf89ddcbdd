// Looks into raw payloads, where any member may be absent or of another type than the protocol says.

import type { ContentBlock, Raw } from "../api/types";
import { visible } from "./words";

export function record(value: unknown): Raw | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Raw) : null;
}

export function text(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

/** Words that stand for a thing or an action, where nothing may hide. */
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
  return records(value).filter((entry) => typeof entry["type"] === "string") as unknown as ContentBlock[];
}
