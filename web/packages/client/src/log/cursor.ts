// An event's id is `<epoch>-<seq>`: seq counts a session's events from 1 without a hole; a new epoch means another history.

export interface Cursor {
  epoch: string;
  seq: number;
}

export function parseCursor(id: unknown): Cursor | null {
  if (typeof id !== "string") return null;
  const match = /^([^-]+)-(\d+)$/.exec(id);
  return match ? { epoch: match[1]!, seq: Number(match[2]) } : null;
}
