// Commands that run in a terminal, folded from their events.

import type { LogEvent } from "../event.js";
import { line, lookup, number, text, visible } from "./read.js";
import type { SessionLog, Terminal } from "./state.js";
import { addItem, changeOwner } from "./turns.js";

/** Characters of output that are held; the gateway has more. */
const KEPT = 200_000;

export function newTerminal(terminalId: string): Terminal {
  return { terminalId, command: "", output: "", cut: false, exited: false, exitCode: null, signal: null };
}

export function appended(terminal: Terminal, data: string): Terminal {
  const output = terminal.output + data;
  return output.length <= KEPT ? { ...terminal, output } : { ...terminal, output: output.slice(-KEPT), cut: true };
}

export function terminalChanged(log: SessionLog, event: LogEvent): SessionLog {
  const terminalId = text(event["terminalId"]);
  if (terminalId === null) return log;
  const known = lookup(log.terminals, terminalId);
  const before = known ?? newTerminal(terminalId);
  const next = { ...log, terminals: { ...log.terminals, [terminalId]: changed(before, event) } };
  if (known) return next;
  return changeOwner(next, event, (turn) => addItem(turn, { kind: "terminal", key: `c${event.seq}`, terminalId }));
}

function changed(terminal: Terminal, event: LogEvent): Terminal {
  switch (event.type) {
    case "terminal.created": {
      const args = Array.isArray(event["args"]) ? event["args"].filter((arg) => typeof arg === "string").map(visible) : [];
      return { ...terminal, command: [line(event["command"]) ?? "", ...args].join(" ") };
    }
    case "terminal.output":
      return appended(terminal, text(event["data"]) ?? "");
    default:
      return { ...terminal, exited: true, exitCode: number(event["exitCode"]), signal: line(event["signal"]) };
  }
}
