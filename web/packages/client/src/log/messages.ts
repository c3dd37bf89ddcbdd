// What the tabs of a browser send each other about the one stream that they share.

import type { LogEvent } from "../event.js";
import type { ListChange } from "../list.js";
import type { Connection } from "./follow.js";

/** Sessions, each with the id of the last event that a tab has. */
export type Cursors = [session: string, lastEventId: string][];

/** From the leading tab to all tabs. */
export type Told =
  /** A tab begins to lead: each tab repeats what it follows. */
  | { kind: "leads" }
  /** The leading tab works. */
  | { kind: "beat" }
  | { kind: "events"; session: string; events: LogEvent[] }
  | { kind: "connection"; connection: Connection }
  /** Sessions of the list changed. */
  | { kind: "list"; changes: ListChange[] }
  /** Changes of the list follow from now on. It has to be read once: in this tab, or in all tabs. */
  | { kind: "readList"; tab: string | null }
  /** These sessions have to be read again, each with a request of its own. */
  | { kind: "again"; sessions: string[] }
  /** The gateway refuses the stream: each tab opens its own, which says why. */
  | { kind: "alone" };

/** From a tab to the leading tab. */
export type Asked =
  /** `list`: the tab shows the list of sessions. */
  | { kind: "follows"; tab: string; cursors: Cursors; list: boolean }
  | { kind: "here"; tab: string }
  | { kind: "gone"; tab: string }
  | { kind: "retry" };
