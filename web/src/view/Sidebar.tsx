// The list of sessions in groups, newest first, and the settings of the page.

import { useState, useSyncExternalStore } from "react";
import type { GatewayClient, SessionSummary as Session } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { grouped, matches } from "../model/groups";
import { goTo, TASKS_HREF } from "../model/route";
import { seen } from "../model/seen";
import type { SessionList } from "@acp-gateway/react";
import { Icon } from "./Icon";
import { KeyRights } from "./KeyRights";
import { NoticesChoice } from "./NoticesChoice";
import { ProblemNote } from "./ProblemNote";
import { SessionRow } from "./SessionRow";
import { moveFocus, SessionSearch } from "./SessionSearch";
import { ThemeChoice } from "./ThemeChoice";

interface Props {
  client: GatewayClient;
  list: SessionList;
  open: string | null;
  /** The title of the open session in its view. The agent may set it only at the end of a turn. */
  openTitle: string | null;
  onForget(): void;
  onNavigate(): void;
  onSearch(): void;
}

export function Sidebar({ client, list, open, openTitle, onForget, onNavigate, onSearch }: Props) {
  const [error, setError] = useState<unknown>(null);
  const [search, setSearch] = useState("");
  useSyncExternalStore(seen.subscribe, seen.stored);
  const titleOf = (session: Session) =>
    visible(session.title ?? (session.sessionId === open ? openTitle : null) ?? "Untitled session");
  const found = list.sessions?.filter((session) => matches({ ...session, title: titleOf(session) }, search.trim())) ?? [];

  async function act(action: Promise<unknown>, done?: () => void) {
    try {
      await action;
      setError(null);
      done?.();
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
        <SessionSearch search={search} onSearch={setSearch} onOpen={onSearch} />
      </div>
      {error !== null && <ProblemNote error={error} />}
      {list.error !== null && list.sessions === null && <ProblemNote error={list.error} />}
      {list.sessions !== null && found.length === 0 && (
        <p className="sidebar-empty" role="status">
          {list.sessions.length === 0 ? "No sessions yet." : "No session matches."}
        </p>
      )}
      <div className="session-groups" onKeyDown={moveFocus}>
        {grouped(found, Date.now()).map((group) => (
          <section key={group.name} aria-label={group.name}>
            <h2 className="session-group">{group.name}</h2>
            <ul>
              {group.sessions.map((session) => (
                <SessionRow
                  key={session.sessionId}
                  session={session}
                  current={session.sessionId === open}
                  unread={session.sessionId !== open && seen.isUnread(session)}
                  title={titleOf(session)}
                  onNavigate={onNavigate}
                  onRename={(title) => void act(client.renameSession(session.sessionId, title))}
                  onDelete={() => void act(client.deleteSession(session.sessionId), () => session.sessionId === open && goTo("#/"))}
                />
              ))}
            </ul>
          </section>
        ))}
      </div>
      <div className="sidebar-foot">
        <a className="link-button" href={TASKS_HREF} onClick={onNavigate}>
          Tasks
        </a>
        <a className="link-button" href="docs" target="_blank" rel="noopener noreferrer">
          API docs
        </a>
        <button className="link-button" type="button" onClick={onForget}>
          Sign out
        </button>
        <KeyRights client={client} />
        <NoticesChoice />
        <ThemeChoice />
      </div>
    </nav>
  );
}
