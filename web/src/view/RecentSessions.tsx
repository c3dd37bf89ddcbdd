// The sessions that a person probably goes on with, on the start page.

import { known, type SessionSummary } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { folderName } from "../model/folders";
import { sessionHref } from "../model/route";
import { seen } from "../model/seen";
import { sessionMark } from "../model/sessionState";
import { strings } from "../strings";
import { Ago } from "./Ago";
import { SessionStateMark } from "./SessionStateMark";

const MOST = 5;

export function RecentSessions({ sessions, children }: { sessions: SessionSummary[]; children?: React.ReactNode }) {
  const shown = [...sessions].sort((a, b) => Number(known(b.state) === "waiting") - Number(known(a.state) === "waiting")).slice(0, MOST);
  return (
    <section className="recent" aria-labelledby="recent-title">
      <div className="recent-head">
        <h2 id="recent-title">{shown.length > 0 ? strings.start.recent : strings.start.noRecent}</h2>
        {children}
      </div>
      {shown.map((session) => (
        <a key={session.sessionId} className="recent-row" href={sessionHref(session.sessionId)}>
          <span className="recent-title" dir="auto">{visible(session.title ?? strings.common.untitled)}</span>
          <span className="recent-state">
            <SessionStateMark mark={sessionMark(session, seen.isUnread(session))} />
          </span>
          <span className="recent-where">{[session.agent, folderOf(session)].filter((part) => part !== null).join(" · ")}</span>
          <Ago time={session.lastActivityAt} />
        </a>
      ))}
    </section>
  );
}

function folderOf({ cwd, sessionId }: SessionSummary): string | null {
  const name = folderName(cwd, sessionId);
  return name === null ? null : visible(name);
}
