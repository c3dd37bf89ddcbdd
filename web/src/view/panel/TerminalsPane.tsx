// All commands of a session with their output, the newest first.

import type { Item, SessionLog, Terminal } from "@acp-gateway/client";
import { strings } from "../../strings";
import { TerminalBlock } from "../TerminalBlock";
import { LoadEarlier } from "./LoadEarlier";

/** Older commands are in the conversation. */
const MOST = 30;

export function TerminalsPane({ log, onEarlier }: { log: SessionLog; onEarlier(): void }) {
  const terminals = terminalsOf(log);
  const newest = terminals.slice(-MOST).reverse();
  return (
    <>
      {newest.map((terminal) => (
        <TerminalBlock key={terminal.terminalId} terminal={terminal} />
      ))}
      {newest.length < MOST && log.start > 0 ? <LoadEarlier onLoad={onEarlier} /> : newest.length === 0 && <p className="panel-empty">{strings.panel.noTerminals}</p>}
    </>
  );
}

/** The terminals of the gateway, and the commands that the agent ran by itself. */
export function terminalsOf(log: SessionLog): Terminal[] {
  const own = (items: readonly Item[]): Terminal[] =>
    items.flatMap((item) => {
      if (item.kind === "subagent") return own(item.items);
      if (item.kind !== "tool" || !item.commands) return [];
      return Object.values(item.commands).map((terminal) => ({ ...terminal, command: terminal.command || item.title }));
    });
  return [...log.turns.flatMap((turn) => own(turn.items)), ...Object.values(log.terminals)];
}
