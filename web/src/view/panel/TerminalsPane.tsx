// All commands of a session with their output, the newest first.

import type { Item, SessionLog, Terminal } from "@acp-gateway/client";
import { strings } from "../../strings";
import { TerminalBlock } from "../TerminalBlock";

/** Older commands are in the conversation. */
const MOST = 30;

export function TerminalsPane({ log }: { log: SessionLog }) {
  const terminals = terminalsOf(log);
  if (terminals.length === 0) return <p className="panel-empty">{strings.panel.noTerminals}</p>;
  return terminals
    .slice(-MOST)
    .reverse()
    .map((terminal) => <TerminalBlock key={terminal.terminalId} terminal={terminal} />);
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
