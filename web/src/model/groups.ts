// The groups of the list of sessions, and its search.

import { known, type SessionSummary as Session } from "@acp-gateway/client";
import { strings } from "../strings";

export interface Group {
  name: string;
  sessions: Session[];
}

const DAY_MS = 86_400_000;

/** Groups sessions and keeps their order. A group without a session is left out. */
export function grouped(sessions: Session[], now: number): Group[] {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const { needsYou, today, thisWeek, older } = strings.sidebar.groups;
  const groups: Group[] = [needsYou, today, thisWeek, older].map((name) => ({ name, sessions: [] }));
  for (const session of sessions) groups[place(session, midnight)]!.sessions.push(session);
  return groups.filter((group) => group.sessions.length > 0);
}

/** Adds the sessions that others share below those that wait for the person. */
export function withShared(groups: Group[], sessions: Session[]): Group[] {
  if (sessions.length === 0) return groups;
  const at = groups[0]?.name === strings.sidebar.groups.needsYou ? 1 : 0;
  return [...groups.slice(0, at), { name: strings.sharing.withMe, sessions }, ...groups.slice(at)];
}

function place(session: Session, midnight: number): number {
  if (known(session.state) === "waiting") return 0;
  const changed = Date.parse(session.lastActivityAt);
  if (changed >= midnight) return 1;
  return changed >= midnight - 6 * DAY_MS ? 2 : 3;
}

/** Whether the title, the agent or the folder of a session contains each word of the search. */
export function matches(session: Session, search: string): boolean {
  const text = `${session.title ?? ""} ${session.agent} ${session.cwd ?? ""}`.toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
