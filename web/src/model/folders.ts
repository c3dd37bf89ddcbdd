// Folders that sessions used before.

import type { SessionSummary as Session } from "@acp-gateway/client";

const MOST = 8;

/** The folders of the latest sessions of an agent, newest first. Folders that the gateway created for one session are omitted. */
export function recentFolders(sessions: Session[] | null, agent: string | null): string[] {
  const chosen = (sessions ?? []).filter((session) => session.agent === agent && session.cwd && !session.cwd.endsWith(`/${session.sessionId}`));
  return [...new Set(chosen.map((session) => session.cwd!))].slice(0, MOST);
}
