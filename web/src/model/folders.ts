// Folders that sessions used before.

import { known, type SessionSummary as Session } from "@acp-gateway/client";
import { load, save } from "./stored";

const MOST = 8;

/** The folders of the latest sessions of an agent, newest first. Folders that the gateway created for one session are omitted. */
export function recentFolders(sessions: Session[] | null, agent: string | null): string[] {
  const chosen = (sessions ?? []).filter((session) => session.agent === agent && session.cwd && folderName(session.cwd, session.sessionId) !== null);
  return [...new Set(chosen.map((session) => session.cwd!))].slice(0, MOST);
}

/** The folder in which a person last started a session of the agent in this browser. Null: a new one. */
export function lastFolder(agent: string): string | null {
  return load(`folder.${agent}`);
}

export function keepFolder(agent: string, folder: string | null): void {
  save(`folder.${agent}`, folder);
}

/** The latest session in a folder. Its files can be named in the first message of a new one. */
export function sessionIn(sessions: Session[] | null, folder: string | null): string | null {
  return (folder !== null && sessions?.find(({ cwd, state }) => cwd === folder && known(state) !== "closed")?.sessionId) || null;
}

/** The last name of a path, which tells folders apart. */
export function lastName(path: string): string {
  return path.replace(/\/+$/, "").split("/").at(-1) || path;
}

/** The name of a session's folder. Null for a folder that the gateway created for the session alone. */
export function folderName(cwd: string, sessionId: string): string | null {
  return cwd.endsWith(`/${sessionId}`) ? null : lastName(cwd);
}
