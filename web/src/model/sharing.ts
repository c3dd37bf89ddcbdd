// The sharing of sessions: the access to the open session, and the texts of grants.

import { useEffect, useRef, useState } from "react";
import { type Access, ApiProblem, type GatewayClient, known, type SessionSummary } from "@acp-gateway/client";
import { strings } from "../strings";
import { explain } from "./explain";
import { LEVELS } from "./rights";

export const TENANT = "tenant";
/** The kinds of grantees that have a name. */
export const KINDS = ["user", "group"] as const;
export type Kind = (typeof KINDS)[number];
export const granteeOf = (kind: Kind, name: string) => `${kind}:${name}`;

/** The name of a grantee for people. */
export function granteeName(grantee: string, tenant: string): string {
  if (grantee === TENANT) return strings.sharing.allUsers(tenant);
  const [kind, name = ""] = grantee.split(":");
  return kind === "group" ? strings.sharing.group(name) : name;
}

/** The problem of a name before the gateway gets it, or null. */
export function nameProblem(kind: Kind, name: string, owner: string | null, grants: number): string | null {
  if (!/^[\w.@-]{1,64}$/.test(name)) return strings.sharing.notAName;
  if (kind === "user" && name === owner) return strings.sharing.isOwner(name);
  return grants < 64 ? null : strings.sharing.tooMany;
}

/** The reason why a grant was not changed. */
export function grantProblem(error: unknown, grantee: string): string {
  const [kind, name = ""] = grantee.split(":");
  switch (error instanceof ApiProblem ? known(error.problem.code) : null) {
    case "invalid":
      return kind === "group" ? strings.sharing.noGroup(name) : strings.sharing.noUser(name);
    case "last_owner":
      return strings.sharing.isOwner(name);
    case "forbidden":
      return strings.sharing.forbidden;
  }
  const { title, hint = "" } = explain(error);
  return `${title} ${hint}`.trim();
}

/** The owner of a session, and the access of the user. Null: unknown. */
export interface OpenAccess {
  owner: string | null;
  access: Access | null;
  /** Increases when a session that was lost can be read again. */
  visit: number;
}

interface Found extends OpenAccess {
  sessionId: string;
  isLost: boolean;
}

const EVERY_MS = 15_000;
const UNKNOWN: OpenAccess = { owner: null, access: null, visit: 0 };

/** The access to the open session. `listed` is its entry in a list: undefined without one, and null until the lists are read. */
export function useOpenAccess(client: GatewayClient, user: string | null, sessionId: string | null, listed: SessionSummary | undefined | null): OpenAccess {
  const [found, setFound] = useState<Found | null>(null);
  /** Known from the list. Without a request, a deleted session of the user causes no refusal. */
  const own = useRef<string | null>(null);
  if (user !== null && listed?.owner === user) own.current = sessionId;
  const isOwn = sessionId !== null && own.current === sessionId;
  const [asked, setAsked] = useState(0);
  const isForeign = found !== null && found.sessionId === sessionId && !found.isLost && found.owner !== user;
  // The stream does not report another level of access.
  useEffect(() => {
    if (!isForeign) return;
    const again = () => !document.hidden && setAsked((before) => before + 1);
    const timer = setInterval(again, EVERY_MS);
    addEventListener("focus", again);
    return () => {
      clearInterval(timer);
      removeEventListener("focus", again);
    };
  }, [isForeign]);

  useEffect(() => {
    if (isOwn || user === null || sessionId === null || listed === null) return;
    const stop = new AbortController();
    const keep = (owner: string | null, access: Access | null) =>
      setFound((before) => {
        const last = before?.sessionId === sessionId ? before : null;
        const isLost = access === null;
        return { sessionId, owner, access, isLost, visit: (last?.visit ?? 0) + (last?.isLost && !isLost ? 1 : 0) };
      });
    client.session(sessionId, { signal: stop.signal }).then(
      ({ owner = null, access }) => keep(owner, LEVELS.find((level) => level === access) ?? "read"),
      (reason: unknown) => reason instanceof ApiProblem && reason.status === 404 && keep(null, null),
    );
    return () => stop.abort();
  }, [client, user, sessionId, listed, isOwn, asked]);
  if (isOwn) return { owner: user, access: "own", visit: 0 };
  return found?.sessionId === sessionId ? found : UNKNOWN;
}
