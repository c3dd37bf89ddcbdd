// The list of sessions in groups, newest first, and the settings of the page.

import { useState, useSyncExternalStore } from "react";
import { type Access, type GatewayClient, known, type SessionSummary as Session } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { grouped, matches, withShared } from "../model/groups";
import { useMay } from "../model/rights";
import { ADMIN_HREF, goTo, INBOX_HREF, TASKS_HREF, type Route } from "../model/route";
import { seen } from "../model/seen";
import { strings } from "../strings";
import type { SessionList } from "@acp-gateway/react";
import { Icon } from "./Icon";
import { KeyRights } from "./KeyRights";
import { GROUP_STEP_MS, useNow } from "./now";
import { ProblemNote } from "./ProblemNote";
import { SessionRow } from "./SessionRow";
import { moveFocus, SessionSearch } from "./SessionSearch";
import { Settings } from "./Settings";
import { useProblem } from "./useProblem";

/** More sessions of others are shown on request, so that they do not hide the person's own. */
const SHARED = 5;

interface Props {
  client: GatewayClient;
  list: SessionList;
  /** The sessions that others share with the user. */
  shared: SessionList;
  /** The access to the open session. */
  access: Access | null;
  route: Route;
  open: string | null;
  /** The title of the open session in its view. The agent may set it only at the end of a turn. */
  openTitle: string | null;
  /** Shows the keys of the user. */
  onKeys(): void;
  onForget(): void;
  onNavigate(): void;
  onSearch(): void;
  /** Shows the keyboard shortcuts. */
  onHelp(): void;
}

export function Sidebar({ client, list, shared, access, route, open, openTitle, onKeys, onForget, onNavigate, onSearch, onHelp }: Props) {
  const [error, setError] = useProblem(list.sessions);
  const mayPrompt = useMay(client, "prompt");
  const mayAdmin = useMay(client, "admin");
  const [search, setSearch] = useState("");
  useSyncExternalStore(seen.subscribe, seen.stored);
  const now = useNow(GROUP_STEP_MS);
  const titleOf = (session: Session) =>
    visible(session.title ?? (session.sessionId === open ? openTitle : null) ?? strings.common.untitled);
  const fits = (session: Session) => matches({ ...session, title: titleOf(session) }, search.trim());
  const found = list.sessions?.filter(fits) ?? [];
  const foundShared = shared.sessions?.filter(fits) ?? [];
  const [showsAll, setShowsAll] = useState(false);
  const shownShared = showsAll || search !== "" ? foundShared : foundShared.filter((session, place) => place < SHARED || session.sessionId === open);

  const waiting = list.sessions?.filter((session) => known(session.state) === "waiting").length ?? 0;

  async function act(action: Promise<unknown>, done?: () => void) {
    try {
      await action;
      setError(null);
      done?.();
    } catch (reason) {
      setError(reason);
    }
    list.refresh();
    shared.refresh();
  }

  return (
    <nav id="sidebar" className="sidebar" aria-label={strings.sidebar.name}>
      <div className="sidebar-head">
        <div className="brand-row">
          <a className="brand" href="#/" onClick={onNavigate}>
            <Brand />
            acp-gateway
          </a>
          <Settings client={client} onKeys={onKeys} onForget={onForget} />
        </div>
        {mayPrompt && (
          <a className="sidebar-action" href="#/" aria-keyshortcuts="Alt+N" onClick={onNavigate}>
            <Icon name="plus" /> {strings.common.newSession}
            <kbd aria-hidden="true">Alt N</kbd>
          </a>
        )}
        <SessionSearch search={search} onSearch={setSearch} onOpen={onSearch} />
        {waiting > 0 && (
          <a className="sidebar-action quiet" href={INBOX_HREF} aria-current={route.page === "inbox" ? "page" : undefined} onClick={onNavigate}>
            <Icon name="waiting" /> {strings.inbox.inbox}
            <span className="count">{waiting}</span>
          </a>
        )}
        <a className="sidebar-action quiet" href={TASKS_HREF} aria-current={route.page === "tasks" ? "page" : undefined} onClick={onNavigate}>
          <Icon name="clock" /> {strings.inbox.tasks}
        </a>
        {mayAdmin && (
          <a className="sidebar-action quiet" href={ADMIN_HREF} aria-current={route.page === "admin" ? "page" : undefined} onClick={onNavigate}>
            <Icon name="mode" /> {strings.admin.title}
          </a>
        )}
      </div>
      {error !== null && <ProblemNote error={error} />}
      {list.error !== null && list.sessions === null && <ProblemNote error={list.error} />}
      {list.sessions !== null && found.length + foundShared.length === 0 && (
        <p className="sidebar-empty" role="status">
          {search === "" ? strings.sidebar.noSessions : strings.sidebar.noMatch}
        </p>
      )}
      <div className="session-groups" onKeyDown={moveFocus}>
        {withShared(grouped(found, now), shownShared).map((group) => (
          <section key={group.name} aria-label={group.name}>
            <h2 className="session-group">
              {group.name}
              {group.name === strings.sidebar.groups.needsYou && <span className="count">{group.sessions.length}</span>}
            </h2>
            <ul>
              {group.sessions.map((session) => (
                <SessionRow
                  key={session.sessionId}
                  session={session}
                  current={session.sessionId === open}
                  unread={session.sessionId !== open && seen.isUnread(session)}
                  title={titleOf(session)}
                  owner={group.name === strings.sharing.withMe ? session.owner : null}
                  mayChange={mayPrompt && (group.name !== strings.sharing.withMe || (session.sessionId === open && access === "own"))}
                  onNavigate={() => {
                    setSearch("");
                    onNavigate();
                  }}
                  onRename={(title) => void act(client.renameSession(session.sessionId, title))}
                  onDelete={() => void act(client.deleteSession(session.sessionId), () => session.sessionId === open && goTo("#/"))}
                />
              ))}
            </ul>
            {group.name === strings.sharing.withMe && shownShared.length < foundShared.length && (
              <button className="link-button" type="button" onClick={() => setShowsAll(true)}>
                {strings.common.showMore}
              </button>
            )}
          </section>
        ))}
      </div>
      <div className="sidebar-foot">
        <KeyRights client={client} />
        <button className="icon-button" type="button" title={strings.sidebar.shortcutsTitle} aria-keyshortcuts="?" onClick={onHelp}>
          <Icon name="keyboard" />
          <span className="hidden">{strings.sidebar.shortcuts}</span>
        </button>
      </div>
    </nav>
  );
}

function Brand() {
  return (
    <svg viewBox="0 0 20 20" fill="none" stroke="currentColor" strokeWidth="2" strokeLinecap="round" aria-hidden="true" focusable="false">
      <path d="M3 17V9.5a7 7 0 0 1 14 0V17" />
      <path d="M7.5 17v-6.8a2.5 2.5 0 0 1 5 0V17" opacity=".45" />
    </svg>
  );
}
