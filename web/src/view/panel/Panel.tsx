// Details of a session beside the conversation: plan, changes, files, terminals and raw events.

import { type Dispatch, type KeyboardEvent, type ReactNode, type SetStateAction, useRef } from "react";
import type { GatewayClient, SessionLog } from "@acp-gateway/client";
import { openPanel, type Tab, TABS, togglePanel } from "../../model/panelTab";
import { useMay } from "../../model/rights";
import { strings } from "../../strings";
import type { LineComment } from "../../model/review";
import { onEscape } from "../escape";
import { focusMessage } from "../focus";
import { Icon } from "../Icon";
import { useSwipeAway } from "../useSwipeAway";
import type { Act } from "../act";
import { ChangesPane } from "./ChangesPane";
import { EventsPane } from "./EventsPane";
import { FilesPane } from "./FilesPane";
import { PlanPane } from "./PlanPane";
import { TerminalsPane, terminalsOf } from "./TerminalsPane";

export interface PanelProps {
  client: GatewayClient;
  sessionId: string;
  log: SessionLog;
  /** Reads the part before the log. */
  onEarlier(): void;
  tab: Tab;
  act: Act;
  /** The comments on changed lines that are not in a message yet. They stay when another tab is open. */
  comments: LineComment[];
  onComments: Dispatch<SetStateAction<LineComment[]>>;
  /** Puts a text into the message field. */
  onWrite(text: string): void;
}

export function Panel({ client, sessionId, log, onEarlier, tab: chosen, act, comments, onComments, onWrite }: PanelProps) {
  const tabs = useRef<HTMLDivElement>(null);
  const sheet = useRef<HTMLElement>(null);
  const head = useRef<HTMLDivElement>(null);
  useSwipeAway(sheet, head, close);
  const mayFiles = useMay(client, "files");
  const shown: readonly Tab[] = mayFiles ? TABS : TABS.filter((name) => name !== "changes" && name !== "files");
  const tab = shown.includes(chosen) ? chosen : shown[0]!;
  const counts: Partial<Record<Tab, number>> = { terminals: terminalsOf(log).length };

  function move(event: KeyboardEvent) {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const next = shown[(shown.indexOf(tab) + step + shown.length) % shown.length]!;
    openPanel(next);
    tabs.current?.querySelector<HTMLElement>(`#tab-${next}`)?.focus();
  }

  const panes: Record<Tab, () => ReactNode> = {
    plan: () => <PlanPane log={log} onEarlier={onEarlier} />,
    changes: () => <ChangesPane client={client} sessionId={sessionId} log={log} act={act} comments={comments} onComments={onComments} onWrite={onWrite} />,
    files: () => <FilesPane client={client} sessionId={sessionId} />,
    terminals: () => <TerminalsPane log={log} onEarlier={onEarlier} />,
    events: () => <EventsPane client={client} sessionId={sessionId} log={log} />,
  };

  return (
    <aside className="panel" ref={sheet} aria-label={strings.session.details} onKeyDown={(event) => onEscape(event, close)}>
      <div className="panel-tabs" ref={head}>
        <div role="tablist" aria-label={strings.session.details} ref={tabs} onKeyDown={move}>
          {shown.map((name) => (
            <button
              key={name}
              id={`tab-${name}`}
              type="button"
              role="tab"
              aria-selected={name === tab}
              aria-controls={name === tab ? "panel-pane" : undefined}
              tabIndex={name === tab ? 0 : -1}
              onClick={() => openPanel(name)}
            >
              {strings.panel.tabs[name]}
              {(counts[name] ?? 0) > 0 && <span className="panel-count">{counts[name]}</span>}
            </button>
          ))}
        </div>
        <button className="icon-button" type="button" title={strings.panel.closeTitle} onClick={close}>
          <Icon name="close" />
          <span className="hidden">{strings.panel.close}</span>
        </button>
      </div>
      <div className="panel-pane" id="panel-pane" role="tabpanel" aria-labelledby={`tab-${tab}`} tabIndex={0}>
        {panes[tab]()}
      </div>
    </aside>
  );
}

function close() {
  togglePanel();
  focusMessage();
}
