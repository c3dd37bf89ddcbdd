// Small phrases that several parts of the page share.

import { lookup } from "./lookup";

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

export function duration(from: string, to: string): string {
  const seconds = Math.max(0, (Date.parse(to) - Date.parse(from)) / 1000);
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 1) return "under a second";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export function ago(time: string, now: number): string {
  const minutes = Math.floor((now - Date.parse(time)) / 60_000);
  if (!Number.isFinite(minutes)) return "";
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ago`;
  return `${Math.floor(minutes / 1440)} days ago`;
}

export function clock(time: string): string {
  return new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

const STOP_REASONS: Record<string, string> = {
  end_turn: "Finished",
  cancelled: "Stopped",
  refusal: "The agent declined to go on",
  max_tokens: "Stopped at the model's length limit",
  max_turn_requests: "Stopped at the limit of model calls in one turn",
};

export function stopWords(reason: string | null): string {
  return lookup(STOP_REASONS, reason) ?? `Ended (${visible(reason ?? "no reason given")})`;
}

const STATES: Record<string, string> = {
  idle: "ready",
  running: "working",
  waiting: "waiting for an answer",
  closed: "closed",
};

export function stateWords(state: string): string {
  return lookup(STATES, state) ?? state;
}

const TITLE_LENGTH = 60;

/** The title that a session takes from its first prompt. It is the same as the gateway's. */
export function promptTitle(text: string): string {
  const line = [...(text.split("\n").map((part) => part.trim()).find((part) => part !== "") ?? "")];
  if (line.length <= TITLE_LENGTH) return line.join("");
  const cut = line.slice(0, TITLE_LENGTH - 1).join("");
  return `${/^(.*)\s\S*$/.exec(cut)?.[1]?.trimEnd() ?? cut}…`;
}

/** The path or the name in a URI, if it is one of a file or of an attachment of this page. */
export function resourceName(uri: string): string {
  const name = /^(?:file:\/\/(?=\/)|attachment:)(.+)$/.exec(uri)?.[1];
  if (name === undefined) return uri;
  try {
    return decodeURIComponent(name);
  } catch {
    return uri;
  }
}
