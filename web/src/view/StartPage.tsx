// The start page: a message, the agent and the folder of a new session. The first Enter creates the session and sends.

import { useEffect, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { type GatewayClient, idempotencyKey, mayHaveHappened, type NewPrompt, type Session, type SessionSummary } from "@acp-gateway/client";
import { startable } from "../model/agents";
import { accepts, promptBlocks } from "../model/attachments";
import { recentFolders } from "../model/folders";
import { goTo, sessionHref } from "../model/route";
import { useAgents } from "@acp-gateway/react";
import { AgentChoice } from "./AgentChoice";
import { AttachButton } from "./AttachButton";
import { AttachmentChips } from "./AttachmentChips";
import { FolderChoice } from "./FolderChoice";
import { focusMessage, MESSAGE_ID } from "./focus";
import { Icon } from "./Icon";
import { InstallableAgents } from "./InstallableAgents";
import { ProblemNote } from "./ProblemNote";
import { pasteFiles, useAttachments, useDroppedFiles } from "./useAttachments";
import { Where } from "./where";

interface Props {
  client: GatewayClient;
  menu: ReactNode;
  sessions: SessionSummary[] | null;
  onCreated(): void;
}

/**
 * A start without a response may have reached the gateway. The next try repeats each of its requests with the same key, and
 * sends the message to the session that exists already.
 */
interface Attempt {
  agent: string;
  folder: string | null;
  key: string;
  session: Session | null;
  message: { body: NewPrompt; key: string } | null;
}

export function StartPage({ client, menu, sessions, onCreated }: Props) {
  const catalogue = useAgents(client);
  const [wanted, setWanted] = useState<string | null>(null);
  const [folder, setFolder] = useState<string | null>(null);
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const attempt = useRef<Attempt | null>(null);
  const attachments = useAttachments(null);
  const dropping = useDroppedFiles(attachments.add);
  const empty = text.trim() === "" && attachments.all.length === 0;
  const { agents } = catalogue;
  const chosen = startable(agents ?? [], wanted ?? sessions?.[0]?.agent ?? null);
  const problem = error ?? (agents === null ? catalogue.error : null);

  useEffect(() => {
    document.title = "acp-gateway";
    focusMessage();
  }, []);

  function choose(agent: string) {
    setWanted(agent);
    setFolder(null);
    setError(null);
  }

  async function start() {
    if (!chosen || busy) return;
    const cwd = folder?.trim() || null;
    const known = attempt.current;
    const now = known?.agent === chosen && known.folder === cwd ? known : { agent: chosen, folder: cwd, key: idempotencyKey(), session: null, message: null };
    attempt.current = now;
    setBusy(true);
    setError(null);
    try {
      now.session ??= await client.createSession({ agent: chosen, cwd }, { idempotencyKey: now.key });
      onCreated();
      const accepted = now.session.attached ? accepts(now.session.promptCapabilities ?? {}) : null;
      if (!attachments.areAccepted(accepted)) return;
      if (!empty) {
        const body = { prompt: promptBlocks(text, attachments.all, accepted) };
        if (JSON.stringify(now.message?.body) !== JSON.stringify(body)) now.message = { body, key: idempotencyKey() };
        await client.prompt(now.session.sessionId, body, { idempotencyKey: now.message!.key });
      }
      attempt.current = null;
      goTo(sessionHref(now.session.sessionId));
    } catch (reason) {
      if (!mayHaveHappened(reason)) {
        now.message = null;
        if (now.session === null) attempt.current = null;
      }
      setError(reason);
      catalogue.refresh();
    } finally {
      setBusy(false);
    }
  }

  function press(event: KeyboardEvent) {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    if (!empty) void start();
  }

  return (
    <div className="start">
      <header className="bar">{menu}</header>
      <div className="start-form">
        <h1>What should we work on?</h1>
        <form
          className="composer"
          aria-label="Start a session"
          onSubmit={(event) => {
            event.preventDefault();
            void start();
          }}
        >
          <div className={dropping ? "composer-box dropping" : "composer-box"}>
            <AttachmentChips attachments={attachments} />
            <label className="hidden" htmlFor={MESSAGE_ID}>
              First message
            </label>
            <textarea
              id={MESSAGE_ID}
              rows={3}
              value={text}
              placeholder="Describe a task"
              onChange={(event) => setText(event.target.value)}
              onKeyDown={press}
              onPaste={(event) => pasteFiles(event, attachments.add)}
            />
            <div className="composer-row">
              <AttachButton onPick={attachments.add} />
              <div className="options">
                <FolderChoice
                  key={chosen}
                  client={client}
                  browses={agents?.find((agent) => agent.name === chosen)?.kind === "local"}
                  recent={recentFolders(sessions, chosen)}
                  folder={folder}
                  onChoose={setFolder}
                />
              </div>
              <button className="button primary" type="submit" disabled={!chosen || busy} aria-busy={busy}>
                <Icon name="send" />
                <span>{busy ? "Starting the agent…" : empty ? "Start session" : "Start and send"}</span>
              </button>
            </div>
          </div>
        </form>
        {problem !== null && (
          <Where value={{ client, agent: chosen }}>
            <ProblemNote error={problem}>
              {agents === null && (
                <button className="button small" type="button" onClick={catalogue.refresh}>
                  Try again
                </button>
              )}
            </ProblemNote>
          </Where>
        )}
        {agents?.length === 0 && <p>No agents are configured. Add one to the gateway's configuration and restart it.</p>}
        {agents !== null && agents.length > 0 && (
          <fieldset className="agents" disabled={busy}>
            <legend className="agents-legend">Agent</legend>
            {agents.map((agent) => (
              <AgentChoice key={agent.name} agent={agent} chosen={chosen === agent.name} onChoose={() => choose(agent.name)} />
            ))}
          </fieldset>
        )}
        {agents !== null && <InstallableAgents client={client} configured={agents.map((agent) => agent.name)} />}
      </div>
    </div>
  );
}
