// The menu of a session: its link, its conversation as a file, its users, the output of its agent, a fork, a new conversation, and its end.

import { useState, type ReactNode } from "react";
import { type GatewayClient, idempotencyKey, type SessionLog } from "@acp-gateway/client";
import { fileName, toMarkdown } from "../model/exported";
import { useMay } from "../model/rights";
import { goTo, sessionHref } from "../model/route";
import { strings } from "../strings";
import { AgentOutput } from "./AgentOutput";
import { CopyButton } from "./CopyButton";
import { download } from "./download";
import { Icon } from "./Icon";
import { NewConversationDialog } from "./NewConversationDialog";
import { Popover } from "./Popover";
import { RenameDialog } from "./RenameDialog";
import { WhenOpened } from "./WhenOpened";
import type { Act } from "./act";

interface Props {
  client: GatewayClient;
  sessionId: string;
  log: SessionLog;
  /** The log with all events. */
  wholeLog(): Promise<SessionLog>;
  title: string;
  /** Whether a turn runs. */
  busy: boolean;
  act: Act;
}

export function SessionMenu({ client, sessionId, log, wholeLog, title, busy, act }: Props) {
  const [showsOutput, setShowsOutput] = useState(false);
  const [renames, setRenames] = useState(false);
  const [begins, setBegins] = useState(false);
  const [shares, setShares] = useState(false);
  const mayPrompt = useMay(client, "prompt", "prompt");
  const mayOwn = useMay(client, "prompt", "own");
  const seesOutput = useMay(client, "read", "own");
  const exportMarkdown = async () => download(`${fileName(title)}.md`, "text/markdown", toMarkdown(await wholeLog(), title));
  const exportJson = async () => {
    const events = await client.allEvents(sessionId);
    download(`${fileName(title)}.json`, "application/json", JSON.stringify({ sessionId, title, events }, null, 1));
  };
  const fork = async () => goTo(sessionHref((await client.fork(sessionId, { idempotencyKey: idempotencyKey() })).sessionId));

  return (
    <>
      <Popover button={<Icon name="more" />} className="icon-button" label={strings.session.menu} name={strings.session.menuName} side="right">
        {(close) => {
          const choose = (action: () => Promise<unknown>) => {
            close();
            void act(action);
          };
          // The dialog returns the focus to the button of the menu.
          const open = (show: (shows: true) => void) => {
            close();
            show(true);
          };
          return (
            <>
              <CopyButton text={location.href} label={strings.session.copyLink} />
              <Entry onChoose={() => choose(exportMarkdown)}>{strings.session.saveMarkdown}</Entry>
              <Entry onChoose={() => choose(exportJson)}>{strings.session.saveJson}</Entry>
              <Entry onChoose={() => open(setShares)}>{mayOwn ? strings.sharing.share : strings.sharing.people}</Entry>
              {seesOutput && <Entry onChoose={() => open(setShowsOutput)}>{strings.common.outputOfAgent}</Entry>}
              {mayOwn && <Entry onChoose={() => open(setRenames)}>{strings.session.rename}</Entry>}
              {mayPrompt && (
                <>
                  <hr className="popover-line" />
                  {mayOwn && (
                    <Entry disabled={busy} onChoose={() => choose(fork)}>
                      {strings.session.fork}
                    </Entry>
                  )}
                  <Entry disabled={busy} onChoose={() => open(setBegins)}>
                    {strings.session.newConversation}
                  </Entry>
                  {!log.closed && <Entry onChoose={() => choose(() => client.close(sessionId))}>{strings.session.close}</Entry>}
                </>
              )}
            </>
          );
        }}
      </Popover>
      {shares && <WhenOpened>{({ ShareDialog }) => <ShareDialog client={client} sessionId={sessionId} mayShare={mayOwn} onClose={() => setShares(false)} />}</WhenOpened>}
      {renames && <RenameDialog title={title} onClose={() => setRenames(false)} onRename={(given) => act(() => client.renameSession(sessionId, given))} />}
      {begins && <NewConversationDialog onClose={() => setBegins(false)} onBegin={() => act(() => client.beginConversation(sessionId))} />}
      {showsOutput && <AgentOutput client={client} sessionId={sessionId} onClose={() => setShowsOutput(false)} />}
    </>
  );
}

function Entry({ disabled = false, onChoose, children }: { disabled?: boolean; onChoose(): void; children: ReactNode }) {
  return (
    <button className="link-button" type="button" disabled={disabled} onClick={onChoose}>
      {children}
    </button>
  );
}
