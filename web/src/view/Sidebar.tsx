// The list of sessions, newest first, and the settings of the key.

import { useState } from "react";
import type { Client } from "../api/client";
import type { Session } from "../api/types";
import { goTo, sessionHref, TASKS_HREF } from "../model/route";
import type { SessionList } from "../model/useSessions";
import { ago, stateWords, visible } from "../model/words";
import { onEscape } from "./escape";
import { Icon } from "./Icon";
import { ProblemNote } from "./ProblemNote";

interface Props {
  client: Client;
  list: SessionList;
  open: string | null;
  /** The title of the open session in its view. The agent may set it only at the end of a turn. */
  openTitle: string | null;
  onForget(): void;
  onNavigate(): void;
}

export function Sidebar({ client, list, open, openTitle, onForget, onNavigate }: Props) {
  const [asking, setAsking] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);

  async function remove(session: string) {
    setAsking(null);
    try {
      await client.deleteSession(session);
      setError(null);
      if (session === open) goTo("#/");
    } catch (reason) {
      setError(reason);
    }
    list.refresh();
  }

  return (
    <nav id="sidebar" className="sidebar" aria-label="Sessions">
      <div className="sidebar-head">
        <a className="brand" href="#/" onClick={onNavigate}>
          acp-gateway
        </a>
        <a className="button" href="#/" onClick={onNavigate}>
          <Icon name="plus" /> New session
        </a>
      </div>
      {error !== null && <ProblemNote error={error} />}
      {list.error !== null && list.sessions === null && <ProblemNote error={list.error} />}
      {list.sessions?.length === 0 && <p className="sidebar-empty">No sessions yet.</p>}
      <ul className="session-list">
        {list.sessions?.map((session) => (
          <li key={session.sessionId} className={session.sessionId === open ? "session-row current" : "session-row"}>
            {asking === session.sessionId ? (
              <ConfirmDelete onDelete={() => void remove(session.sessionId)} onKeep={() => setAsking(null)} />
            ) : (
              <Row
                session={session}
                current={session.sessionId === open}
                title={visible(session.title ?? (session.sessionId === open ? openTitle : null) ?? "Untitled session")}
                onNavigate={onNavigate}
                onDelete={() => setAsking(session.sessionId)}
              />
            )}
          </li>
        ))}
      </ul>
      <div className="sidebar-foot">
        <a className="link-button" href={TASKS_HREF} onClick={onNavigate}>
          Tasks
        </a>
        <button className="link-button" type="button" onClick={onForget}>
          <Icon name="key" /> Forget the key
        </button>
        <a className="link-button" href="docs" target="_blank" rel="noopener noreferrer">
          API
        </a>
      </div>
    </nav>
  );
}

interface RowProps {
  session: Session;
  current: boolean;
  title: string;
  onNavigate(): void;
  onDelete(): void;
}

function Row({ session, current, title, onNavigate, onDelete }: RowProps) {
  return (
    <>
      <a className="session-link" href={sessionHref(session.sessionId)} aria-current={current ? "page" : undefined} onClick={onNavigate}>
        <span className={`dot dot-${session.state}`} title={stateWords(session.state)} />
        <span className="session-words">
          <span className="session-title">{title}</span>
          <span className="session-meta">
            {session.agent} · {session.state === "idle" ? ago(session.updatedAt, Date.now()) : stateWords(session.state)}
          </span>
        </span>
      </a>
      <button className="icon-button session-delete" type="button" onClick={onDelete}>
        <Icon name="delete" />
        <span className="hidden">Delete {title}</span>
      </button>
    </>
  );
}

function ConfirmDelete({ onDelete, onKeep }: { onDelete(): void; onKeep(): void }) {
  return (
    <div className="confirm" role="group" aria-label="Delete this session?" onKeyDown={(event) => onEscape(event, onKeep)}>
      <span>Delete with all its history?</span>
      <button className="button small danger" type="button" onClick={onDelete}>
        Delete
      </button>
      <button className="button small" type="button" autoFocus onClick={onKeep}>
        Keep
      </button>
    </div>
  );
}
