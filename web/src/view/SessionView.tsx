// One session: its header, its transcript, its open requests, and the composer.

import { useCallback, useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from "react";
import { flushSync } from "react-dom";
import { type ApiProblem, blocksText, type GatewayClient, type SessionFeed, type SharedConnection, openRequests, runningTurn, type SessionLog } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { useSession, useSessionState } from "@acp-gateway/react";
import { accepts } from "../model/attachments";
import { useDraft } from "../model/draft";
import { folderName } from "../model/folders";
import { panelChoice, togglePanel } from "../model/panelTab";
import type { LineComment } from "../model/review";
import { promptTitle } from "../model/words";
import { useMay, useMissing } from "../model/rights";
import { seen } from "../model/seen";
import type { OpenAccess } from "../model/sharing";
import { strings } from "../strings";
import type { Act } from "./act";
import { Announcer } from "./Announcer";
import { Boundary } from "./Boundary";
import { Composer } from "./Composer";
import { ConnectionBanner } from "./ConnectionBanner";
import { Elsewhere, useElsewhere } from "./Elsewhere";
import { focusMessage, focusMessageIfFree } from "./focus";
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
import { Reached, useReached } from "./reached";
import { useProblem } from "./useProblem";
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
  /** What another user shares. Null for a session of the user. */
  shared: OpenAccess | null;
  /** Called with the session's title when something changed that the list shows too. */
  onActivity(title: string): void;
}

export function SessionView(props: Props) {
  const feed = useSession(props.client, props.hub, props.sessionId);
  // Before this visit counts.
  const [seenUntil] = useState(() => seen.until(props.sessionId));
  return feed ? <Followed {...props} feed={feed} seenUntil={seenUntil} /> : null;
}

function Followed({ client, sessionId, turn, menu, shared, onActivity, feed, seenUntil }: Props & { feed: SessionFeed; seenUntil: string | null }) {
  const shown = useSessionState(feed);
  const { log, connection, caughtUp, earlier } = shown;
  const reached = useReached(connection);
  const [error, setError] = useProblem(reached);
  const [sends, setSends] = useState(0);
  /** A change of a queued message came too late. */
  const [isLate, setIsLate] = useState(false);
  const [comments, setComments] = useState<LineComment[]>([]);
  const [draft, setDraft] = useDraft(sessionId);
  const prompts = useMissing(client, "prompt", "prompt");
  const approves = useMissing(client, "approve", "approve");
  const [mayPrompt, mayApprove] = [prompts === null, approves === null];
  const mayFiles = useMay(client, "files");
  const running = runningTurn(log);
  const sent = useMemo(() => log.turns.map((turn) => blocksText(turn.prompt)).filter((text) => text !== ""), [log.turns]);
  const requests = useMemo(() => openRequests(log), [log]);
  const { elsewhere, answeredHere, dismiss } = useElsewhere(log, requests[0] ?? null);
  const folder = log.cwd === null ? null : folderName(log.cwd, sessionId);
  const gone = log.deleted || (connection.state === "ended" && connection.why === "deleted");
  const refused = connection.state === "refused";
  const isKnown = log.seq > 0;
  const title = isKnown ? titleOf(log) : gone || refused ? strings.session.unknown : strings.session.loading;

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
  }, [setError]);

  const addToDraft = useCallback(
    (text: string) => {
      // A text that is in the field already stays.
      setDraft((before) => (before.trim() === "" || before === text ? text : `${before}\n\n${text}`));
    },
    [setDraft],
  );
  const rewrite = useCallback(
    (text: string) => {
      addToDraft(text);
      focusMessage();
    },
    [addToDraft],
  );
  const keepChange = useCallback(
    (text: string) => {
      addToDraft(text);
      focusMessageIfFree();
      setIsLate(true);
    },
    [addToDraft],
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
      if (texts.length === 0) return;
      // At once, because the next character that a person types replaces the text of the field.
      flushSync(() => addToDraft(texts.join("\n\n")));
      focusMessageIfFree();
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
                <h1 className="bar-title" dir="auto">{title}</h1>
                {shared?.access && !refused && <p className="bar-shared">{strings.sharing.by(shared.owner ?? "", lookup(strings.sharing.youCan, shared.access) ?? "")}</p>}
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
              loading={!caughtUp && !isKnown && !gone && !refused}
              isReady={isKnown}
              earlier={earlier}
              whole={whole}
              onEarlier={readEarlier}
              agent={log.agent}
              seenUntil={seenUntil}
              named={turn}
              sends={sends}
              onRewrite={mayPrompt ? rewrite : null}
            />
            <footer className="dock">
              {!gone && !refused && !log.closed && <Queue client={client} sessionId={sessionId} turns={queued} running={running?.promptId ?? null} mayChange={mayPrompt} act={act} onLate={keepChange} />}
              {!gone && !refused && (
                <Boundary key={requests[0]?.requestId ?? ""}>
                  <fieldset className={approves === "access" ? "answers unanswerable" : "answers"} disabled={!mayApprove}>
                    <RequestDock log={log} requests={requests} client={client} sessionId={sessionId} act={mayApprove ? act : refuse} onAnswer={answeredHere} />
                  </fieldset>
                  {!mayApprove && requests.length > 0 && <p className="dock-note">{approves === "access" ? strings.sharing.mayNotAnswer : strings.key.mayNotAnswer}</p>}
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
                <Gone client={client} gone={gone} wasShown={isKnown} error={refused ? connection.error : null} />
              ) : log.closed ? (
                <div className="closed">
                  <p>{strings.session.closed}</p>
                  {mayPrompt && (
                    <button className="button" type="button" onClick={() => void act(() => client.attach(sessionId))}>
                      {strings.session.reopen}
                    </button>
                  )}
                </div>
              ) : !mayPrompt ? (
                <div className="closed">
                  <p>{prompts === "access" ? strings.sharing.mayNotPrompt : strings.key.mayNotPrompt}</p>
                </div>
              ) : (
                <Composer
                  client={client}
                  sessionId={sessionId}
                  commands={log.commands}
                  mayFiles={mayFiles}
                  accepted={accepted}
                  sent={sent}
                  text={draft}
                  setText={setDraft}
                  running={running !== null}
                  reached={reached}
                  act={act}
                  onStop={stop}
                  onSent={() => {
                    setSends((before) => before + 1);
                    setIsLate(false);
                  }}
                >
                  {mayApprove && <Options log={log} client={client} sessionId={sessionId} act={act} />}
                </Composer>
              )}
              {!gone && !refused && !log.closed && mayPrompt && <Hints asks={requests.length > 0 && mayApprove} queues={running !== null} hasCommands={log.commands.length > 0} hasFiles={mayFiles} />}
            </footer>
            <Announcer log={log} caughtUp={caughtUp} />
          </div>
          {panel !== "closed" && !gone && !refused && <Reached value={reached}><PanelPlace client={client} sessionId={sessionId} log={log} onEarlier={readEarlier} tab={panel} act={act} comments={comments} onComments={setComments} onWrite={rewrite} /></Reached>}
        </div>
      </WorkingFolder>
    </Where>
  );
}

/** For a key that may not answer: a key press does nothing. */
const refuse: Act = () => Promise.resolve(false);

const loadPanel = () => import("./panel/Panel");

function PanelPlace(props: PanelProps) {
  const panel = usePart(loadPanel);
  return panel.state === "here" ? <panel.part.Panel {...props} /> : <aside className="panel" aria-label={strings.session.details} />;
}

/** The keys of the message field, or those of a question above it. */
function Hints({ asks, queues, hasCommands, hasFiles }: { asks: boolean; queues: boolean; hasCommands: boolean; hasFiles: boolean }) {
  const field = [["Enter", queues ? strings.composer.queue : strings.common.send], ...(hasFiles ? [["@", strings.common.files]] : []), ...(hasCommands ? [["/", strings.common.commands]] : [])];
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

interface GoneProps {
  client: GatewayClient;
  gone: boolean;
  /** Whether the page has shown the session before. */
  wasShown: boolean;
  error: ApiProblem | null;
}

function Gone({ client, gone, wasShown, error }: GoneProps) {
  const mayStart = useMay(client, "prompt");
  return (
    <div className="closed">
      {gone ? <p>{strings.session.deleted}</p> : wasShown && error?.status === 404 ? <p role="alert">{strings.sharing.lost}</p> : <ProblemNote error={error} />}
      {mayStart && (
        <a className="button" href="#/">
          {strings.session.startNew}
        </a>
      )}
    </div>
  );
}

function titleOf(log: SessionLog): string {
  if (log.title) return log.title;
  const first = log.turns.find((turn) => turn.prompt.length > 0);
  return promptTitle(first ? blocksText(first.prompt) : "") || strings.common.newSession;
}
