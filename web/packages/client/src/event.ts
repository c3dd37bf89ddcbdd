// Events of sessions and of streams.

import type { Open } from "./open.js";
import { type components, EVENT_TYPES } from "./schema.js";

/**
 * An event whose type the document lists: `switch (event.type)` selects its members. Get one with `isKnown`. It is an event of the
 * log, which has an `id` and a `seq`, or one about the stream (`ready`, `position`, `session.summary`, `summaries.reset`, `reset`, `problem`,
 * `shutdown`, `end`).
 */
export type GatewayEvent = Open<components["schemas"]["SessionEvent"]>;

export type GatewayEventType = GatewayEvent["type"];

/** An event of any type, also of one that a later gateway has. */
export interface LogEvent {
  type: string;
  time: string;
  /** The cursor of a client that has this event. */
  id?: string;
  /** The number in its session, from 1 without gaps. */
  seq?: number;
  sessionId?: string;
  /** The turn. Absent outside of turns. */
  promptId?: string;
  [member: string]: unknown;
}

/** A page of the log. */
export interface EventPage {
  events: LogEvent[];
  lastEventId: string;
  /** Whether further events exist. */
  more: boolean;
}

/** Whether this version of the client knows the type of the event. Ignore other events. */
export function isKnown(event: LogEvent): event is LogEvent & GatewayEvent {
  return (EVENT_TYPES as readonly string[]).includes(event.type);
}

/** The event in the `data` of a frame, or null if it is none. */
export function parseEvent(data: string): LogEvent | null {
  try {
    const value: unknown = JSON.parse(data);
    return typeof value === "object" && value !== null && typeof (value as LogEvent).type === "string" ? (value as LogEvent) : null;
  } catch {
    return null;
  }
}
