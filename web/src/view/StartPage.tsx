// The start page: a message, the agent and the folder of a new session. The first Enter creates the session and sends.

import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { type Agent, type GatewayClient, idempotencyKey, known as knownValue, mayHaveHappened, readCommands, type SessionSummary } from "@acp-gateway/client";
import { record } from "@acp-gateway/client/read";
import { useAgents } from "@acp-gateway/react";
import { agentState, agentTitle, startable } from "../model/agents";
import { type Accepts, accepts, promptBlocks } from "../model/attachments";
import { saveDraft } from "../model/draft";
import { keepFolder, lastFolder, recentFolders, sessionIn } from "../model/folders";
import { useMay } from "../model/rights";
import { goTo, sessionHref } from "../model/route";
import { mentioned } from "../model/suggest";
import { useAbout } from "../model/useAbout";
import { strings } from "../strings";
import { AgentMenu } from "./AgentMenu";
import { AttachButton } from "./AttachButton";
import { AttachmentChips } from "./AttachmentChips";
import { focusMessage, focusMessageIfFree, sendsText } from "./focus";
import { FolderChoice } from "./FolderChoice";
import { Icon } from "./Icon";
import { MessageField } from "./MessageField";
import { ProblemNote } from "./ProblemNote";
import { RecentSessions } from "./RecentSessions";
import { StartOptions, type StartSelection, useKnownSession } from "./StartOptions";
import { useProblem } from "./useProblem";
import { useAttachments, useDroppedFiles } from "./useAttachments";
import { WhenOpened } from "./WhenOpened";
import { Where } from "./where";
import { Words } from "./Words";

interface Props {
  client: GatewayClient;
  menu: ReactNode;
  sessions: SessionSummary[] | null;
  onCreated(): void;
}

/** A start without a response may have reached the gateway. The next try repeats it with the same key. */
interface Attempt {
  body: string;
  key: string;
}

/** Messages that a person can begin with. */
const SUGGESTED = [
  { icon: "execute", text: strings.start.fixTest },
  { icon: "changes", text: strings.start.reviewChanges },
  { icon: "file", text: strings.start.explainRepository },
];

export function StartPage({ client, menu, sessions, onCreated }: Props) {
  const catalogue = useAgents(client);
  const mayPrompt = useMay(client, "prompt");
  const mayApprove = useMay(client, "approve");
  const mayFiles = useMay(client, "files");
  const mayAdmin = useMay(client, "admin");
  const [wanted, setWanted] = useState<string | null>(null);
  /** Undefined: the folder of the last start. */
  const [choice, setFolder] = useState<string | null>();
  const [text, setText] = useState("");
  const [selection, setSelection] = useState<StartSelection>({});
  const [busy, setBusy] = useState(false);
  const [imports, setImports] = useState(false);
  const [error, setError] = useProblem(catalogue.agents);
  const attempt = useRef<Attempt | null>(null);
  /** Whether the page began without an agent that has a model. The first added agent does not move the page. */
  const setsUp = useRef<boolean | null>(null);
  const latestText = useRef(text);
  latestText.current = text;
  const attachments = useAttachments(null);
  const dropping = useDroppedFiles(attachments.add);
  const empty = text.trim() === "" && attachments.all.length === 0;
  const { agents } = catalogue;
  const chosen = startable(agents ?? [], wanted ?? sessions?.[0]?.agent ?? null);
  const agent = agents?.find(({ name }) => name === chosen);
  const folder = choice === undefined ? chosen && lastFolder(chosen) : choice;
  // An agent says its commands, modes and models only in a session.
  const known = useKnownSession(client, sessions?.find((session) => session.agent === chosen)?.sessionId ?? null);
  const commands = useMemo(() => readCommands(known?.availableCommands), [known]);
  const chosenFiles = useRef(new Set<string>());
  // The list also has sessions that were started outside of the gateway, so only an admin key gets it.
  const canImport = mayPrompt && mayAdmin && listsSessions(agent);
  const problem = error ?? (agents === null ? catalogue.error : null);

  useEffect(() => {
    document.title = "acp-gateway";
    focusMessageIfFree();
  }, []);

  function choose(name: string) {
    setWanted(name);
    // The agents of this host share its folders.
    const isLocal = (of: string | null) => knownValue(agents?.find((one) => one.name === of)?.kind) === "local";
    setFolder(folder !== null && isLocal(chosen) && isLocal(name) ? folder : undefined);
    setSelection({});
    setError(null);
  }

  function addedNow(name: string) {
    catalogue.refresh();
    choose(name);
    focusMessageIfFree();
  }

  async function start() {
    const accepted = acceptedBy(agent);
    if (!chosen || busy || !attachments.areAccepted(accepted)) return;
    const prompt = empty ? {} : { prompt: promptBlocks(text, attachments.all, accepted) };
    const files = mentioned(text, chosenFiles.current).map((path) => ({ path }));
    const cwd = folder?.trim() || null;
    const body = { agent: chosen, ...(cwd ? { cwd } : {}), ...prompt, ...(files.length > 0 ? { attachments: files } : {}), ...selection };
    const repeats = attempt.current?.body === JSON.stringify(body);
    const now = repeats ? attempt.current! : { body: JSON.stringify(body), key: idempotencyKey() };
    attempt.current = now;
    setBusy(true);
    setError(null);
    try {
      const session = await client.createSession(body, { idempotencyKey: now.key });
      keepFolder(chosen, cwd);
      onCreated();
      attempt.current = null;
      // Text that was typed after the message begins the next one.
      const written = latestText.current;
      if (written !== text) saveDraft(session.sessionId, written.startsWith(text) ? written.slice(text.length) : written);
      goTo(sessionHref(session.sessionId));
    } catch (reason) {
      if (!mayHaveHappened(reason)) attempt.current = null;
      setError(reason);
      catalogue.refresh();
    } finally {
      setBusy(false);
    }
  }

  function press(event: KeyboardEvent) {
    if (!sendsText(event)) return;
    event.preventDefault();
    if (!empty) void start();
  }

  if (!mayPrompt) return <MayNotStart menu={menu} sessions={sessions} />;
  if (agents !== null) setsUp.current ??= agents.every(({ name }) => name === "demo");
  const first = setsUp.current ?? false;
  const adding = agents && <AddingAgents client={client} agents={agents} first={first} onAdded={addedNow} />;
  if (agents?.length === 0) return <NoAgent menu={menu}>{adding}</NoAgent>;
  return (
    <div className="start">
      <header className="bar">{menu}</header>
      <div className="start-form">
        <h1>{strings.start.heading}</h1>
        <form
          className="composer"
          aria-label={strings.start.form}
          onSubmit={(event) => {
            event.preventDefault();
            void start();
          }}
        >
          <div className={dropping ? "composer-box dropping" : "composer-box"}>
            <AttachmentChips attachments={attachments} />
            <MessageField
              client={client}
              sessionId={mayFiles ? sessionIn(sessions, folder) : null}
              commands={commands}
              label={strings.start.message}
              placeholder={strings.start.placeholder}
              text={text}
              onText={setText}
              chosenFiles={chosenFiles}
              onPress={press}
              onFiles={attachments.add}
            />
            <div className="composer-row">
              <AttachButton onPick={attachments.add} />
              <div className="options">
                {known && mayApprove && <StartOptions known={known} selection={selection} onSelect={setSelection} />}
              </div>
              <button
                className="button primary round"
                type="submit"
                title={empty ? strings.start.start : strings.start.startTitle}
                disabled={!chosen || busy}
                aria-busy={busy}
              >
                {busy ? <span className="spinner" /> : <Icon name="send" />}
                <span className="hidden">{busy ? strings.start.starting : empty ? strings.start.start : strings.start.startAndSend}</span>
              </button>
            </div>
          </div>
          <div className="shelf">
            {agents !== null && <AgentMenu agents={agents} chosen={chosen} onChoose={choose} />}
            <FolderChoice
              key={chosen}
              client={client}
              browses={knownValue(agent?.kind) === "local"}
              recent={recentFolders(sessions, chosen)}
              folder={folder}
              onChoose={setFolder}
            />
          </div>
        </form>
        {problem !== null && (
          <Where value={{ client, agent: chosen }}>
            <ProblemNote error={problem}>
              {agents === null && (
                <button className="button small" type="button" onClick={catalogue.refresh}>
                  {strings.common.tryAgain}
                </button>
              )}
            </ProblemNote>
          </Where>
        )}
        {agent && <AgentProblem agent={agent} />}
        <div className={text === "" ? "suggested" : "suggested kept"} role="group" aria-label={strings.start.suggestions}>
          {SUGGESTED.map(({ icon, text: suggestion }) => (
            <button
              key={suggestion}
              className="button"
              type="button"
              onClick={() => {
                setText(suggestion);
                focusMessage();
              }}
            >
              <Icon name={icon} /> {suggestion}
            </button>
          ))}
        </div>
        {first && adding}
        {sessions !== null && (sessions.length > 0 || canImport) && (
          <RecentSessions sessions={sessions}>
            {chosen && canImport && (
              <button className="link-button" type="button" onClick={() => setImports(true)}>
                {strings.start.adopt(chosen)}
              </button>
            )}
          </RecentSessions>
        )}
        {imports && chosen && <WhenOpened>{({ AgentSessions }) => <AgentSessions client={client} agent={chosen} onClose={() => setImports(false)} />}</WhenOpened>}
        {!first && adding}
      </div>
    </div>
  );
}

/** The types of content that the agent accepts. Null before its first start: the gateway then refuses what it does not accept. */
function acceptedBy(agent: Agent | undefined): Accepts | null {
  const known = record(agent?.capabilities);
  return known && accepts(record(known["promptCapabilities"]) ?? record(record(known["session"])?.["prompt"]) ?? {});
}

/** Whether the agent can list the sessions of its own store. */
function listsSessions(agent: Agent | undefined): boolean {
  const known = record(agent?.capabilities);
  return record(record(known?.["sessionCapabilities"])?.["list"]) !== null;
}

/** The state of an agent that may not start. */
function AgentProblem({ agent }: { agent: Agent }) {
  const state = agentState(agent);
  if (state.tone === "good") return null;
  return (
    <p className={`agent-state agent-${state.tone}`}>
      <Icon name="warning" />
      <span>
        {agentTitle(agent)}: {state.word}
        {state.detail && `. ${state.detail}`}
      </span>
    </p>
  );
}

/** For a key that may not start sessions: those that there are. */
function MayNotStart({ menu, sessions }: Pick<Props, "menu" | "sessions">) {
  return (
    <div className="start">
      <header className="bar">{menu}</header>
      <div className="start-form">
        <h1>{strings.key.mayNotStart}</h1>
        {sessions !== null && sessions.length > 0 && <RecentSessions sessions={sessions} />}
      </div>
    </div>
  );
}

function NoAgent({ menu, children }: { menu: ReactNode; children: ReactNode }) {
  return (
    <div className="start">
      <header className="bar">{menu}</header>
      <div className="start-form">
        <h1>{strings.start.noAgent}</h1>
        <p>{strings.start.noAgentHint}</p>
        {children}
      </div>
    </div>
  );
}

interface AddingProps {
  client: GatewayClient;
  agents: Agent[];
  first: boolean;
  onAdded(agent: string): void;
}

function AddingAgents({ client, agents, first, onAdded }: AddingProps) {
  const about = useAbout(client);
  if (useMay(client, "admin")) {
    return <WhenOpened>{({ AddAgents }) => <AddAgents client={client} names={agents.map(({ name }) => name)} first={first} onAdded={onAdded} />}</WhenOpened>;
  }
  if (!first || about === null) return null;
  return (
    <p className="installable-note">
      <Words text={strings.agents.needsAdminLink} />
    </p>
  );
}
