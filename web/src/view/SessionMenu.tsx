// The menu of a session: its link, its conversation as a file, the output of its agent, a fork, and its end.

import { useEffect, useRef, useState, type ReactNode } from "react";
import { type GatewayClient, idempotencyKey, type SessionLog } from "@acp-gateway/client";
import { fileName, toMarkdown } from "../model/exported";
import { goTo, sessionHref } from "../model/route";
import { AgentOutput } from "./AgentOutput";
import { CopyButton } from "./CopyButton";
import { onEscape } from "./escape";
import { Icon } from "./Icon";
import type { Act } from "./SessionView";

interface Props {
  client: GatewayClient;
  sessionId: string;
  log: SessionLog;
  title: string;
  /** Whether a turn runs. */
  busy: boolean;
  act: Act;
}

export function SessionMenu({ client, sessionId, log, title, busy, act }: Props) {
  const [open, setOpen] = useState(false);
  const [showsOutput, setShowsOutput] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);

  // A press outside closes the menu.
  useEffect(() => {
    if (!open) return;
    const press = (event: PointerEvent) => {
      if (!place.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("pointerdown", press);
    return () => removeEventListener("pointerdown", press);
  }, [open]);

  function close() {
    setOpen(false);
    button.current?.focus();
  }

  function choose(action: () => Promise<unknown>) {
    close();
    void act(action);
  }

  const exportJson = async () => {
    const events = await client.allEvents(sessionId);
    download(`${fileName(title)}.json`, "application/json", JSON.stringify({ sessionId, title, events }, null, 1));
  };
  const fork = async () => goTo(sessionHref((await client.fork(sessionId, { idempotencyKey: idempotencyKey() })).sessionId));

  return (
    <div className="session-menu" ref={place} onKeyDown={(event) => open && onEscape(event, close)}>
      <button className="icon-button" type="button" ref={button} aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name="more" />
        <span className="hidden">More about this session</span>
      </button>
      {open && (
        <div className="session-menu-items" role="group" aria-label="This session">
          <CopyButton text={location.href} label="Copy the link" />
          <Entry onChoose={() => choose(async () => download(`${fileName(title)}.md`, "text/markdown", toMarkdown(log, title)))}>
            Download as Markdown
          </Entry>
          <Entry onChoose={() => choose(exportJson)}>Download as JSON</Entry>
          <Entry
            onChoose={() => {
              // The dialog returns the focus to this button.
              close();
              setShowsOutput(true);
            }}
          >
            Output of the agent
          </Entry>
          <Entry disabled={busy} onChoose={() => choose(fork)}>
            Fork
          </Entry>
          {!log.closed && <Entry onChoose={() => choose(() => client.close(sessionId))}>Close</Entry>}
        </div>
      )}
      {showsOutput && <AgentOutput client={client} sessionId={sessionId} onClose={() => setShowsOutput(false)} />}
    </div>
  );
}

function Entry({ disabled = false, onChoose, children }: { disabled?: boolean; onChoose(): void; children: ReactNode }) {
  return (
    <button className="link-button" type="button" disabled={disabled} onClick={onChoose}>
      {children}
    </button>
  );
}

function download(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads the text after this function.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
