// Small phrases that several parts of the page share.

import type { NoteItem } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";

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

/** A time today, or a day and a time. */
export function since(time: string): string {
  const at = new Date(time);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? clock(time) : at.toLocaleString([], { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
}

export function clock(time: string): string {
  return new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** With seconds, for people who compare events. */
export function time(of: string): string {
  return new Date(of).toLocaleTimeString([], { hour12: false });
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

/** Why an agent lost the context, by the reason of `session.attached`. */
const LOST: Record<string, string> = {
  not_found: "The agent no longer has this session.",
  unsupported: "This agent cannot load earlier sessions.",
  rejected_session: "The agent rejected this session after it had loaded it.",
};

export function noteWords(note: NoteItem): string {
  switch (note.cause) {
    case "agent":
      return note.text;
    case "context_lost":
      return `${lookup(LOST, note.text) ?? "The agent could not continue the session."} It does not remember what came before.`;
    case "privileged_mode":
      return `The agent switched to the mode “${note.text}”, which nobody can select here. It may act without asking.`;
    case "agent_exited":
      return "The agent's process ended. It starts again with the next message.";
    case "agent_disconnected":
      return "The connection to the agent's host was lost. The next message connects again.";
  }
}
