// The page around a session: the list beside it, the start page when none is open.

import { useCallback, useEffect, useMemo, useState } from "react";
import { type GatewayClient, known, type SharedConnection } from "@acp-gateway/client";
import { noticesAreOn, useNotices } from "../model/notices";
import { goTo, isEmbedded, sessionHref, useRoute } from "../model/route";
import { togglePanel } from "../model/panelTab";
import { SessionAccess } from "../model/rights";
import { seen } from "../model/seen";
import { useOpenAccess } from "../model/sharing";
import { useAbout } from "../model/useAbout";
import { strings } from "../strings";
import { useSessions } from "@acp-gateway/react";
import { onEscape } from "./escape";
import { Icon } from "./Icon";
import { SessionView } from "./SessionView";
import { useShortcuts } from "./shortcuts";
import { Sidebar } from "./Sidebar";
import { StartPage } from "./StartPage";
import { WhenOpened } from "./WhenOpened";

const SHARED = { shared: true };

interface Props {
  client: GatewayClient;
  /** Null if each tab has its own connection. */
  hub: SharedConnection | null;
  /** Shows the keys of the user. */
  onKeys(): void;
  onForget(): void;
}

export function Shell({ client, hub, onKeys, onForget }: Props) {
  const route = useRoute();
  const embedded = isEmbedded();
  const user = useAbout(client)?.principal.id ?? null;
  const list = useSessions(client, { connection: hub, user, whileHidden: noticesAreOn });
  const shared = useSessions(client, { connection: hub, user, query: SHARED });
  const [drawer, setDrawer] = useState(false);
  const [openTitle, setOpenTitle] = useState<string | null>(null);
  const open = route.page === "session" ? route.sessionId : null;
  const { refresh, sessions } = list;
  const all = useMemo(() => sessions && [...sessions, ...(shared.sessions ?? [])], [sessions, shared.sessions]);
  const access = useOpenAccess(client, user, open, all && all.find((session) => session.sessionId === open));
  useNotices(sessions);
  const [help, setHelp] = useState(false);
  useShortcuts({
    newSession: () => goTo("#/"),
    nextWaiting: () => {
      const waiting = sessions?.filter((session) => known(session.state) === "waiting") ?? [];
      const next = waiting[(waiting.findIndex((session) => session.sessionId === open) + 1) % waiting.length];
      if (next) goTo(sessionHref(next.sessionId));
    },
    panel: () => open !== null && togglePanel(),
    help: () => setHelp(true),
  });
  const openDrawer = useCallback(() => setDrawer(true), []);

  // Choosing a session on a small screen closes the drawer over it.
  useEffect(() => {
    setDrawer(false);
    setOpenTitle(null);
  }, [open, route.page]);

  // A session that a person looks at is seen.
  useEffect(() => {
    if (!all) return;
    seen.begin(all);
    const look = () => {
      const shown = document.hidden ? undefined : all.find((session) => session.sessionId === open);
      if (shown) seen.mark(shown.sessionId, shown.lastActivityAt);
    };
    look();
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, [all, open]);

  const changed = useCallback(
    (title: string) => {
      setOpenTitle(title);
      refresh();
    },
    [refresh],
  );

  const menu = embedded ? null : (
    <button className="icon-button menu-button" type="button" aria-expanded={drawer} aria-controls="sidebar" onClick={() => setDrawer(!drawer)}>
      <Icon name={drawer ? "close" : "menu"} />
      <span className="hidden">{drawer ? strings.sidebar.closeList : strings.sidebar.openList}</span>
    </button>
  );

  return (
    <div className={embedded ? "shell embedded" : drawer ? "shell drawer-open" : "shell"} onKeyDown={(event) => drawer && onEscape(event, () => setDrawer(false))}>
      <a className="skip" href="#main" onClick={skipToMain}>
        {strings.sidebar.skip}
      </a>
      {!embedded && (
        <Sidebar
          client={client}
          list={list}
          shared={shared}
          access={access.access}
          route={route}
          open={open}
          openTitle={openTitle}
          onKeys={onKeys}
          onForget={onForget}
          onNavigate={() => setDrawer(false)}
          onSearch={openDrawer}
          onHelp={() => setHelp(true)}
        />
      )}
      {drawer && <div className="drawer-scrim" onClick={() => setDrawer(false)} />}
      <main id="main" tabIndex={-1}>
        {route.page === "inbox" ? (
          <WhenOpened>{({ InboxPage }) => <InboxPage client={client} sessions={sessions} menu={menu} onAnswered={refresh} />}</WhenOpened>
        ) : route.page === "tasks" ? (
          <WhenOpened>{({ TasksPage }) => <TasksPage client={client} menu={menu} />}</WhenOpened>
        ) : route.page === "admin" ? (
          <WhenOpened>{({ AdminPage }) => <AdminPage client={client} section={route.section} menu={menu} />}</WhenOpened>
        ) : open ? (
          <SessionAccess value={access.access}>
            <SessionView
              key={`${open} ${access.visit}`}
              client={client}
              hub={hub}
              sessionId={open}
              turn={route.page === "session" ? route.turn : null}
              menu={menu}
              shared={access.owner === user ? null : access}
              onActivity={changed}
            />
          </SessionAccess>
        ) : (
          <StartPage client={client} menu={menu} sessions={list.sessions} onCreated={list.refresh} />
        )}
      </main>
      {help && <WhenOpened>{({ KeyboardHelp }) => <KeyboardHelp onClose={() => setHelp(false)} />}</WhenOpened>}
    </div>
  );
}

/** The address belongs to the route, so the jump is made by hand. */
function skipToMain(event: React.MouseEvent) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
