// A session in the list: its link, and the forms that rename and delete it.

import { useState, type FormEvent } from "react";
import type { SessionSummary as Session } from "@acp-gateway/client";
import { sessionHref } from "../model/route";
import { sessionMark } from "../model/sessionState";
import { strings } from "../strings";
import { Ago } from "./Ago";
import { onEscape } from "./escape";
import { Icon } from "./Icon";
import { SessionStateMark } from "./SessionStateMark";
import { TitleField } from "./TitleField";

interface Props {
  session: Session;
  current: boolean;
  /** It has activity that nobody has seen in this browser. */
  unread: boolean;
  title: string;
  /** The user that shares the session, or null. */
  owner: string | null;
  /** Whether the user may rename and delete the session. */
  mayChange: boolean;
  onNavigate(): void;
  onRename(title: string): void;
  onDelete(): void;
}

export function SessionRow({ session, current, unread, title, owner, mayChange, onNavigate, onRename, onDelete }: Props) {
  const [form, setForm] = useState<"rename" | "delete" | null>(null);
  const close = () => setForm(null);
  const mark = sessionMark(session, unread);
  return (
    <li className={current ? "session-row current" : "session-row"}>
      {form === "delete" ? (
        <ConfirmDelete onDelete={onDelete} onKeep={close} />
      ) : form === "rename" ? (
        <Rename
          title={session.title ?? ""}
          onClose={close}
          onRename={(given) => {
            close();
            onRename(given);
          }}
        />
      ) : (
        <>
          <a className="session-link" href={sessionHref(session.sessionId)} aria-current={current ? "page" : undefined} onClick={onNavigate}>
            <span className={unread ? "session-title unread" : "session-title"} dir="auto">
              {title}
              {unread && <span className="hidden"> {strings.sidebar.isNew}</span>}
            </span>
            <span className="session-meta">
              <SessionStateMark mark={mark} />
              {mark.word !== null && " · "}
              <span className="session-about">
                {owner !== null && `${owner} · `}
                <Ago time={session.lastActivityAt} />
                {owner === null && ` · ${session.agent}`}
              </span>
            </span>
          </a>
          {mayChange && (
            <span className="session-actions">
              <button className="icon-button" type="button" title={strings.sidebar.rename} onClick={() => setForm("rename")}>
                <Icon name="edit" />
                <span className="hidden">{strings.sidebar.renameOne(title)}</span>
              </button>
              <button className="icon-button" type="button" title={strings.sidebar.remove} onClick={() => setForm("delete")}>
                <Icon name="delete" />
                <span className="hidden">{strings.sidebar.removeOne(title)}</span>
              </button>
            </span>
          )}
        </>
      )}
    </li>
  );
}

function Rename({ title, onRename, onClose }: { title: string; onRename(title: string): void; onClose(): void }) {
  const [text, setText] = useState(title);
  const given = text.trim();
  function submit(event: FormEvent) {
    event.preventDefault();
    if (given === "" || given === title) onClose();
    else onRename(given);
  }
  return (
    <form className="confirm" onSubmit={submit} onKeyDown={(event) => onEscape(event, onClose)}>
      <TitleField className="field-box rename-field" value={text} onChange={setText} />
      <button className="button small" type="submit">
        {strings.common.save}
      </button>
      <button className="button small" type="button" onClick={onClose}>
        {strings.common.cancel}
      </button>
    </form>
  );
}

function ConfirmDelete({ onDelete, onKeep }: { onDelete(): void; onKeep(): void }) {
  return (
    <div className="confirm" role="group" aria-label={strings.sidebar.askRemove} onKeyDown={(event) => onEscape(event, onKeep)}>
      <span>{strings.sidebar.askHistory}</span>
      <button className="button small danger" type="button" onClick={onDelete}>
        {strings.sidebar.remove}
      </button>
      <button className="button small" type="button" autoFocus onClick={onKeep}>
        {strings.sidebar.keep}
      </button>
    </div>
  );
}
