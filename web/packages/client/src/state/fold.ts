// The only reducer: from a session's log to the state of the page. It is pure, accepts every event once, and ignores
// unknown events, because the gateway may add event types at any time.

import type { LogEvent } from "../event.js";
import type { ModeSelection, Problem, Raw } from "../types.js";
import { parseCursor } from "../log/cursor.js";
import { commands, configOptions, modes } from "./offers.js";
import { batch } from "./lists.js";
import { blocks, line, record, records, text } from "./read.js";
import { elicitationCompleted, requestCreated, requestResolved } from "./request.js";
import { EMPTY, type SessionLog, type Turn } from "./state.js";
import { terminalChanged } from "./terminal.js";
import { addItem, addTurn, changeOwner, moveQueued, updateTurn } from "./turns.js";
import { foldUpdate, note, usage } from "./update.js";

export function foldAll(log: SessionLog, events: readonly LogEvent[]): SessionLog {
  return batch(() => events.reduce(fold, log));
}

export function fold(log: SessionLog, event: LogEvent): SessionLog {
  const cursor = parseCursor(event.id);
  if (!cursor) return log;
  if (event.type === "reset") {
    // The log follows from its earliest event, so the old state is discarded.
    return { ...withSession(EMPTY, event["session"]), epoch: cursor.epoch, seq: cursor.seq };
  }
  // An event without a number of its own is a mark in the stream, not a piece of history.
  if (event.seq === undefined) return log;
  const base = log.epoch === null || log.epoch === cursor.epoch ? log : EMPTY;
  if (cursor.seq <= base.seq) return base;
  return { ...(isOfEarlierTurn(base, event) ? withoutTurn(base, event) : step(base, event)), epoch: cursor.epoch, seq: cursor.seq };
}

/** Whether the turn of an event began before the events that were read. */
function isOfEarlierTurn(log: SessionLog, event: LogEvent): boolean {
  if (log.start === 0 || event.promptId === undefined || event.type === "prompt.queued") return false;
  // A prompt that was queued has its content in an earlier event.
  if (event.type === "prompt.started" && Array.isArray(event["prompt"])) return false;
  return !log.turns.some((turn) => turn.promptId === event.promptId);
}

/** A late update changes only what is among the earlier parts. */
function withoutTurn(log: SessionLog, event: LogEvent): SessionLog {
  return event["late"] === true ? log : { ...log, incomplete: true };
}

function step(log: SessionLog, event: LogEvent): SessionLog {
  switch (event.type) {
    case "session.created":
      return withSession(log, event["session"]);
    case "session.attached":
      return attached(log, event);
    case "session.changed":
      return changed(log, event);
    case "session.privileged_mode":
      return privileged(log, event);
    case "session.closed":
      return { ...log, closed: true };
    case "session.deleted":
      return { ...log, deleted: true };
    case "prompt.queued":
      return { ...log, turns: addTurn(log.turns, turnOf(event, "queued")) };
    case "prompt.changed":
      return promptChanged(log, event);
    case "prompt.started":
      return started(log, event);
    case "prompt.completed":
      return ended(log, event, { status: "completed", stopReason: text(event["stopReason"]), cancelCause: text(event["cancelCause"]) });
    case "prompt.failed":
      return ended(log, event, { status: "failed", problem: problemIn(event), cancelCause: text(event["cancelCause"]) });
    case "session.update":
      return foldUpdate(log, event);
    case "request.created":
      return requestCreated(log, event);
    case "request.resolved":
      return requestResolved(log, event);
    case "elicitation.completed":
      return elicitationCompleted(log, event);
    case "agent.exited":
      return agentExited(log, event);
    case "terminal.created":
    case "terminal.output":
    case "terminal.exited":
      return terminalChanged(log, event);
    default:
      return log;
  }
}

/** The log with what a snapshot of the session says. */
export function withSession(log: SessionLog, value: unknown): SessionLog {
  const session = record(value);
  if (!session) return log;
  return {
    ...usage(log, record(session["usage"]) ?? {}),
    agent: text(session["agent"]),
    title: line(session["title"]),
    titleByPerson: session["titleBy"] === "client",
    cwd: line(session["cwd"]),
    closed: session["state"] === "closed",
    modes: modes(session["modes"]) ?? log.modes,
    configOptions: session["configOptions"] ? configOptions(session["configOptions"]) : log.configOptions,
    deniedModes: deniedModes(session["deniedModes"]),
    promptCapabilities: session["attached"] === true ? (record(session["promptCapabilities"]) ?? {}) : log.promptCapabilities,
    commands: session["availableCommands"] ? commands(session["availableCommands"]) : log.commands,
  };
}

function attached(log: SessionLog, event: LogEvent): SessionLog {
  const result = record(event["result"]);
  const next = {
    ...log,
    closed: false,
    modes: modes(result?.["modes"]) ?? log.modes,
    configOptions: Array.isArray(result?.["configOptions"]) ? configOptions(result["configOptions"]) : log.configOptions,
    deniedModes: deniedModes(event["deniedModes"]),
    promptCapabilities: promptCapabilities(event["agentCapabilities"]),
  };
  if (event["context"] !== "lost") return next;
  const item = note(event, "warning", "context_lost", text(event["reason"]) ?? "", line(event["detail"]));
  return changeOwner(next, event, (turn) => addItem(turn, item));
}

/** An agent that reports none accepts only text. Version 2 of ACP has them in another place. */
function promptCapabilities(agentCapabilities: unknown): Raw {
  const raw = record(agentCapabilities);
  return record(raw?.["promptCapabilities"]) ?? record(record(raw?.["session"])?.["prompt"]) ?? {};
}

function changed(log: SessionLog, event: LogEvent): SessionLog {
  const currentModeId = text(event["currentModeId"]);
  return {
    ...log,
    ...("title" in event ? { title: line(event["title"]), titleByPerson: text(event["title"]) !== null } : {}),
    ...(Array.isArray(event["configOptions"]) ? { configOptions: configOptions(event["configOptions"]) } : {}),
    ...(currentModeId && log.modes ? { modes: { ...log.modes, currentModeId } } : {}),
  };
}

/** The agent entered a mode that no client can select. */
function privileged(log: SessionLog, event: LogEvent): SessionLog {
  const mode = text(event["modeId"]) ?? text(event["value"]) ?? text(event["configId"]) ?? "";
  const item = note(event, "warning", "privileged_mode", mode);
  return changeOwner(log, event, (turn) => addItem(turn, item));
}

/** A client changed the content of a queued prompt, its place, or both. */
function promptChanged(log: SessionLog, event: LogEvent): SessionLog {
  const id = event.promptId;
  if (!id) return log;
  const prompt = event["prompt"];
  const edited = Array.isArray(prompt) ? updateTurn(log.turns, id, (turn) => ({ ...turn, prompt: blocks(prompt) })) : log.turns;
  const turns = "before" in event ? moveQueued(edited, id, text(event["before"])) : edited;
  return turns === log.turns ? log : { ...log, turns };
}

/** After `prompt.queued` the start has no prompt; otherwise it creates the turn. */
function started(log: SessionLog, event: LogEvent): SessionLog {
  const known = log.turns.some((turn) => turn.promptId === event.promptId);
  if (!known || !event.promptId) return { ...log, turns: addTurn(log.turns, turnOf(event, "running")) };
  return { ...log, turns: updateTurn(log.turns, event.promptId, (turn) => ({ ...turn, status: "running", createdAt: event.time })) };
}

function turnOf(event: LogEvent, status: "queued" | "running"): Turn {
  return {
    key: event.promptId ?? `seq-${event.seq}`,
    promptId: event.promptId ?? null,
    status,
    prompt: blocks(event["prompt"]),
    by: text(event["by"]),
    createdAt: event.time,
    endedAt: null,
    stopReason: null,
    cancelCause: null,
    problem: null,
    cut: false,
    items: [],
  };
}

/** Unfinished parts of an ended turn keep their state, but are no longer open. */
function ended(log: SessionLog, event: LogEvent, end: Partial<Turn>): SessionLog {
  if (!event.promptId) return log;
  const change = (turn: Turn): Turn => {
    const next = { ...turn, ...end, endedAt: event.time };
    return turn.status === "queued" && next.stopReason === "cancelled" ? { ...next, status: "removed" } : next;
  };
  return { ...log, turns: updateTurn(log.turns, event.promptId, change) };
}

function problemIn(event: LogEvent): Problem {
  const problem = record(event["problem"]);
  return problem && typeof problem["code"] === "string" ? (problem as unknown as Problem) : { code: "internal" };
}

/** In a turn, `prompt.failed` contains the same with more details, so the page shows only an exit between turns. */
function agentExited(log: SessionLog, event: LogEvent): SessionLog {
  if (event.promptId || log.turns.some((turn) => turn.status === "running")) return log;
  const disconnected = line(event["disconnected"]);
  const item =
    disconnected === null
      ? note(event, "info", "agent_exited", "", text(event["stderrTail"]))
      : note(event, "warning", "agent_disconnected", "", disconnected);
  return changeOwner(log, event, (turn) => addItem(turn, item));
}

function deniedModes(value: unknown): ModeSelection[] {
  const names = ["modeId", "configId", "value"] as const;
  return records(value).map((entry) => Object.fromEntries(names.flatMap((name) => (text(entry[name]) === null ? [] : [[name, entry[name]]]))));
}
