// The sessions that the agent has in its own store, for example from a terminal. A person continues one of them here.

import { useEffect, useState } from "react";
import { type AgentSession, type GatewayClient, idempotencyKey } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { goTo, sessionHref } from "../model/route";
import { strings } from "../strings";
import { Ago } from "./Ago";
import { Dialog } from "./Dialog";
import { ProblemNote } from "./ProblemNote";
import { Where } from "./where";

interface Props {
  client: GatewayClient;
  agent: string;
  onClose(): void;
}

export function AgentSessions({ client, agent, onClose }: Props) {
  const [sessions, setSessions] = useState<AgentSession[] | null>(null);
  const [cursor, setCursor] = useState<string | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    const stop = new AbortController();
    client.agentSessions(agent, { cursor }, { signal: stop.signal }).then(
      (page) => {
        setSessions((before) => [...(before ?? []), ...page.sessions]);
        setNext(page.nextCursor ?? null);
      },
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
  }, [client, agent, cursor]);

  async function adopt({ agentSessionId, cwd, sessionId }: AgentSession) {
    if (sessionId !== null) {
      onClose();
      return goTo(sessionHref(sessionId));
    }
    setBusy(true);
    setError(null);
    try {
      const session = await client.createSession({ agent, agentSessionId, cwd }, { idempotencyKey: idempotencyKey() });
      onClose();
      goTo(sessionHref(session.sessionId));
    } catch (reason) {
      setError(reason);
      setBusy(false);
    }
  }

  return (
    <Dialog title={strings.agents.sessionsOf(agent)} className="agent-output" onClose={onClose}>
      {error !== null && (
        <Where value={{ client, agent }}>
          <ProblemNote error={error} />
        </Where>
      )}
      {sessions === null && error === null && <p role="status">{strings.agents.asking}</p>}
      {sessions?.length === 0 && <p>{strings.agents.noSessions}</p>}
      {sessions !== null && sessions.length > 0 && (
        <ul className="adoptable">
          {sessions.map((session) => (
            <li key={session.agentSessionId}>
              <button className="adoptable-row" type="button" disabled={busy} onClick={() => void adopt(session)}>
                <span className="recent-title">{visible(session.title ?? strings.common.untitled)}</span>
                <code title={visible(session.cwd)}>{visible(session.cwd)}</code>
                <span>
                  {session.sessionId !== null && `${strings.agents.isHere} · `}
                  {session.updatedAt && <Ago time={session.updatedAt} />}
                </span>
              </button>
            </li>
          ))}
        </ul>
      )}
      <div className="dialog-actions">
        {next !== null && (
          <button className="button" type="button" onClick={() => setCursor(next)}>
            {strings.common.showMore}
          </button>
        )}
        <button className="button" type="button" onClick={onClose}>
          {strings.common.cancel}
        </button>
      </div>
    </Dialog>
  );
}
