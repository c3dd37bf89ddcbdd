// One session: its header, its transcript, its open requests, and the composer.

import { useCallback, useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from "react";
import { blocksText, type GatewayClient, type SessionFeed, type SharedConnection, openRequests, runningTurn, type SessionLog } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { useSession, useSessionState } from "@acp-gateway/react";
import { accepts } from "../model/attachments";
import { useDraft } from "../model/draft";
import { folderName } from "../model/folders";
import { panelChoice, togglePanel } from "../model/panelTab";
import type { LineComment } from "../model/review";
import { promptTitle } from "../model/words";
import { seen } from "../model/seen";
import { strings } from "../strings";
import type { Act } from "./act";
import { Announcer } from "./Announcer";
import { Boundary } from "./Boundary";
import { Composer } from "./Composer";
import { ConnectionBanner } from "./ConnectionBanner";
import { Elsewhere, useElsewhere } from "./Elsewhere";
import { focusMessage } from "./focus";
import { Icon } from "./Icon";
import { usePart } from "./lazy";
import { Options } from "./Options";
import type { PanelProps } from "./panel/Panel";
import { ProblemNote } from "./ProblemNote";
import { Queue } from "./Queue";
import { RequestDock } from "./RequestDock";
import { SessionMenu } from "./SessionMenu";
import { Transcript } from "./Transcript";
import { UsageMeter } from "./UsageMeter";
import { useWhole } from "./useWhole";
import { Where } from "./where";
import { WorkingFolder } from "./workingFolder";

interface Props {
  client: GatewayClient;
  hub: SharedConnection | null;
  sessionId: string;
  /** The turn that the address names. */
  turn: string | null;
  menu: ReactNode;
  /** Called with the session's title when something changed that the list shows too. */
  onActivity(title: string): void;
}

export function SessionView(props: Props) {
  const feed = useSession(props.client, props.hub, props.sessionId);
  // Before this visit counts.
  const [seenUntil] = useState(() => seen.until(props.sessionId));
  return feed ? <Followed {...props} feed={feed} seenUntil={seenUntil} /> : null;
}

function Followed({ client, sessionId, turn, menu, onActivity, feed, seenUntil }: Props & { feed: SessionFeed; seenUntil: string | null }) {
  const shown = useSessionState(feed);
  const { log, connection, caughtUp, earlier } = shown;
  const [error, setError] = useState<unknown>(null);
  const [sends, setSends] = useState(0);
  /** A change of a queued message came too late. */
  const [isLate, setIsLate] = useState(false);
  const [comments, setComments] = useState<LineComment[]>([]);
  const [draft, setDraft] = useDraft(sessionId);
  const running = runningTurn(log);
  const sent = useMemo(() => log.turns.map((turn) => blocksText(turn.prompt)).filter((text) => text !== ""), [log.turns]);
  const requests = useMemo(() => openRequests(log), [log]);
  const { elsewhere, answeredHere, dismiss } = useElsewhere(log, requests[0] ?? null);
  const title = titleOf(log);
  const folder = log.cwd === null ? null : folderName(log.cwd, sessionId);
  const gone = log.deleted || (connection.state === "ended" && connection.why === "deleted");
  const refused = connection.state === "refused";

  useEffect(() => {
    document.title = `${requests.length > 0 ? "(!) " : running ? "… " : ""}${title} – acp-gateway`;
  }, [title, requests.length, running]);

  // What is on the screen is seen, also before the list is loaded again.
  const lastEnd = log.turns.at(-1)?.endedAt ?? null;
  useEffect(() => {
    if (caughtUp && lastEnd !== null && !document.hidden) seen.mark(sessionId, lastEnd);
  }, [sessionId, caughtUp, lastEnd]);

  // The list beside shows states and titles too: it is asked again when one of them changed here.
  const state = `${log.closed} ${gone} ${title} ${requests.length > 0} ${running?.promptId ?? ""}`;
  useEffect(() => {
    if (caughtUp) onActivity(title);
  }, [state, title, caughtUp, onActivity]);

  const act: Act = useCallback(async (action) => {
    try {
      await action();
      setError(null);
      return true;
    } catch (reason) {
      setError(reason);
      return false;
    }
  }, []);

  const rewrite = useCallback(
    (text: string) => {
      // A text that is in the field already stays.
      setDraft((before) => (before.trim() === "" || before === text ? text : `${before}\n\n${text}`));
      focusMessage();
    },
    [setDraft],
  );
  const keepChange = useCallback(
    (text: string) => {
      rewrite(text);
      setIsLate(true);
    },
    [rewrite],
  );
  const accepted = useMemo(() => accepts(log.promptCapabilities), [log.promptCapabilities]);
  const where = useMemo(() => ({ client, agent: log.agent }), [client, log.agent]);
  const panel = useSyncExternalStore(panelChoice.subscribe, panelChoice.value);
  const whole = useWhole(feed, shown);
  // The state says that it failed.
  const readEarlier = useCallback(() => void feed.loadEarlier().catch(() => undefined), [feed]);
  const wholeLog = useCallback(async () => {
    await feed.loadEarlier(true);
    return feed.state().log;
  }, [feed]);
  const queued = log.turns.filter(({ status }) => status === "queued");
  // The messages that waited go back to the field.
  const stop = () => {
    void act(async () => {
      const cancelled = new Set<string | null>((await client.cancel(sessionId))?.promptIds);
      const texts = queued.filter(({ promptId }) => cancelled.has(promptId)).map(({ prompt }) => blocksText(prompt));
      if (texts.length > 0) rewrite(texts.join("\n\n"));
    });
  };

  return (
    <Where value={where}>
      <WorkingFolder value={log.cwd}>
        <div className="session-place">
          <div className="session">
            <header className="bar">
              {menu}
              <div className="bar-words">
                <h1 className="bar-title">{title}</h1>
                {folder !== null && log.cwd !== null && (
                  <p className="bar-meta" title={visible(log.cwd)}>
                    <Icon name="folder" />
                    <span className="bar-path">{visible(folder)}</span>
                  </p>
                )}
              </div>
              <UsageMeter usage={log.usage} />
              {!gone && !refused && (
                <button className="icon-button" type="button" title={strings.session.panelTitle} aria-keyshortcuts="Alt+P" aria-pressed={panel !== "closed"} onClick={togglePanel}>
                  <Icon name="panel" />
                  <span className="hidden">{strings.session.panel}</span>
                </button>
              )}
              {!gone && !refused && <SessionMenu client={client} sessionId={sessionId} log={log} wholeLog={wholeLog} title={title} busy={running !== null} act={act} />}
            </header>
            <ConnectionBanner connection={connection} onRetry={() => feed.retryNow()} />
            <Transcript
              log={log}
              busy={running !== null}
              caughtUp={caughtUp}
              loading={!caughtUp && log.seq === 0 && !refused}
              earlier={earlier}
              whole={whole}
              onEarlier={readEarlier}
              agent={log.agent}
              seenUntil={seenUntil}
              named={turn}
              sends={sends}
              onRewrite={rewrite}
            />
            <footer className="dock">
              {!gone && !refused && !log.closed && <Queue client={client} sessionId={sessionId} turns={queued} running={running?.promptId ?? null} act={act} onLate={keepChange} />}
              {!gone && (
                <Boundary key={requests[0]?.requestId ?? ""}>
                  <RequestDock log={log} requests={requests} client={client} sessionId={sessionId} act={act} onAnswer={answeredHere} />
                </Boundary>
              )}
              {elsewhere && <Elsewhere request={elsewhere} onDismiss={dismiss} />}
              {isLate && (
                <p className="dock-note" role="status">
                  {strings.queue.late}
                </p>
              )}
              {error !== null && (
                <div className="dock-problem">
                  <ProblemNote error={error} />
                  <button className="button small" type="button" onClick={() => setError(null)}>
                    {strings.common.dismiss}
                  </button>
                </div>
              )}
              {gone || refused ? (
                <Gone gone={gone} error={refused ? connection.error : null} />
              ) : log.closed ? (
                <div className="closed">
                  <p>{strings.session.closed}</p>
                  <button className="button" type="button" onClick={() => void act(() => client.attach(sessionId))}>
                    {strings.session.reopen}
                  </button>
                </div>
              ) : (
                <Composer
                  client={client}
                  sessionId={sessionId}
                  commands={log.commands}
                  accepted={accepted}
                  sent={sent}
                  text={draft}
                  setText={setDraft}
                  running={running !== null}
                  act={act}
                  onStop={stop}
                  onSent={() => {
                    setSends((before) => before + 1);
                    setIsLate(false);
                  }}
                >
                  <Options log={log} client={client} sessionId={sessionId} act={act} />
                </Composer>
              )}
              {!gone && !refused && !log.closed && <Hints asks={requests.length > 0} queues={running !== null} hasCommands={log.commands.length > 0} />}
            </footer>
            <Announcer log={log} caughtUp={caughtUp} />
          </div>
          {panel !== "closed" && !gone && !refused && <PanelPlace client={client} sessionId={sessionId} log={log} onEarlier={readEarlier} tab={panel} act={act} comments={comments} onComments={setComments} onWrite={rewrite} />}
        </div>
      </WorkingFolder>
    </Where>
  );
}

const loadPanel = () => import("./panel/Panel");

function PanelPlace(props: PanelProps) {
  const panel = usePart(loadPanel);
  return panel.state === "here" ? <panel.part.Panel {...props} /> : <aside className="panel" aria-label={strings.session.details} />;
}

/** The keys of the message field, or those of a question above it. */
function Hints({ asks, queues, hasCommands }: { asks: boolean; queues: boolean; hasCommands: boolean }) {
  const field = [["Enter", queues ? strings.composer.queue : strings.common.send], ["@", strings.common.files], ...(hasCommands ? [["/", strings.common.commands]] : [])];
  const question = [["Shift+Tab", strings.session.toQuestion], ["1–9", strings.session.answer]];
  return (
    <p className="hints" aria-hidden="true">
      {(asks ? question : field).map(([key, words]) => (
        <span key={key}>
          <kbd>{key}</kbd> {words}
        </span>
      ))}
    </p>
  );
}

function Gone({ gone, error }: { gone: boolean; error: unknown }) {
  return (
    <div className="closed">
      {gone ? <p>{strings.session.deleted}</p> : <ProblemNote error={error} />}
      <a className="button" href="#/">
        {strings.session.startNew}
      </a>
    </div>
  );
}

function titleOf(log: SessionLog): string {
  if (log.title) return log.title;
  const first = log.turns.find((turn) => turn.prompt.length > 0);
  return promptTitle(first ? blocksText(first.prompt) : "") || strings.common.newSession;
}
