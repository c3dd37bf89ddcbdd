// Small phrases that several parts of the page share.

import type { NoteItem } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { strings } from "../strings";

export function duration(from: string, to: string): string {
  return length((Date.parse(to) - Date.parse(from)) / 1000);
}

/** A length of time in seconds as text. */
export function length(ofSeconds: number): string {
  const exact = Math.max(0, ofSeconds);
  if (!Number.isFinite(exact)) return "";
  if (exact < 1) return strings.time.underOneSecond;
  const seconds = Math.round(exact);
  if (seconds < 60) return strings.time.seconds(seconds);
  if (seconds < 3600) return strings.time.minutes(Math.floor(seconds / 60), seconds % 60);
  if (seconds < 48 * 3600) return strings.time.hours(Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60));
  return strings.time.days(Math.floor(seconds / 86_400), Math.floor((seconds % 86_400) / 3600));
}

export function ago(time: string, now: number): string {
  const minutes = Math.floor((now - Date.parse(time)) / 60_000);
  if (!Number.isFinite(minutes)) return "";
  if (minutes < 1) return strings.time.justNow;
  if (minutes < 60) return strings.time.minutesAgo(minutes);
  if (minutes < 48 * 60) return strings.time.hoursAgo(Math.floor(minutes / 60));
  return strings.time.daysAgo(Math.floor(minutes / 1440));
}

/** A time today, or a day and a time, with the year if it is not the current one. */
export function since(time: string): string {
  const at = new Date(time);
  const now = new Date();
  if (at.toDateString() === now.toDateString()) return clock(time);
  const day = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" } as const;
  return at.toLocaleString([], at.getFullYear() === now.getFullYear() ? day : { ...day, year: "numeric" });
}

export function clock(time: string): string {
  return new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** With seconds, for people who compare events. */
export function time(of: string): string {
  return new Date(of).toLocaleTimeString([], { hour12: false });
}

/** How a turn ended, with the cause if the gateway cancelled it. */
export function stopWords(reason: string | null, cause: string | null): string {
  const stopped = lookup(strings.transcript.stopReasons, reason) ?? strings.transcript.otherStop(visible(reason ?? strings.transcript.noReason));
  // An agent may end a cancelled turn in its own way.
  const because = reason === "cancelled" ? lookup(strings.transcript.cancelCauses, cause) : undefined;
  return because ? strings.transcript.stoppedBecause(stopped, because) : stopped;
}

const TITLE_LENGTH = 60;

/** The title that a session takes from its first prompt. It is the same as the gateway's. */
export function promptTitle(text: string): string {
  const line = [...(text.split("\n").map((part) => part.trim()).find((part) => part !== "") ?? "").slice(0, 4 * TITLE_LENGTH)];
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

export function noteWords(note: NoteItem): string {
  switch (note.cause) {
    case "agent":
      return note.text;
    case "context_lost":
      return strings.transcript.contextLost(lookup(strings.transcript.lost, note.text) ?? strings.transcript.otherLost);
    case "privileged_mode":
      return strings.transcript.privilegedMode(note.text);
    case "agent_exited":
      return strings.transcript.agentExited;
    case "agent_disconnected":
      return strings.transcript.agentDisconnected;
  }
}
