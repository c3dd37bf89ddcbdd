// A tool call: its title and state, and, when expanded, its content.

import { memo, useMemo } from "react";
import type { Raw, Terminal, ToolItem, ToolLocation } from "@acp-gateway/client";
import { line, lookup, record, visible } from "@acp-gateway/client/read";
import { actionOf } from "../model/action";
import { diffCounts } from "../model/diff";
import { rawOutputOf } from "../model/output";
import { strings } from "../strings";
import { ActionView, RawValue } from "./ActionView";
import { Icon } from "./Icon";
import { TerminalBlock } from "./TerminalBlock";
import { CommandOutput, ToolContent } from "./ToolContent";
import { useShortPath } from "./workingFolder";

interface Props {
  item: ToolItem;
  live: boolean;
  /** The final state of a call that was open at the end of its turn. */
  settled: string;
  folded: boolean;
  /** Nobody permitted the call, so it did not run. */
  declined: boolean;
  terminals: Record<string, Terminal>;
}

const STATUS: Record<string, string> = {
  pending: "waiting",
  in_progress: "running",
  completed: "done",
  failed: "failed",
};

export const ToolCard = memo(function ToolCard({ item, live, settled, folded, declined, terminals }: Props) {
  // A call that was open at the end of its turn is not running any more.
  const open = item.status === "pending" || item.status === "in_progress";
  const ended = declined && item.status === "failed" ? "declined" : (lookup(STATUS, item.status) ?? visible(item.status));
  const status = open && !live ? settled : ended;
  const action = actionOf(null, item);
  const hides = action.command !== null && action.command !== item.title && item.commands === undefined;
  const commands = Object.values(item.commands ?? {}).map((command) => (open && live ? command : { ...command, exited: true }));
  const output = commands.length === 0 ? rawOutputOf(item) : null;
  const hasRaw = item.content.length === 0 && commands.length === 0 && output === null && !hides && (item.rawInput !== undefined || item.rawOutput !== undefined);
  const hasBody = item.content.length > 0 || commands.length > 0 || output !== null || hides || item.locations.length > 0 || hasRaw;
  // The output of a command has the command above it.
  const showsCommand = commands.length > 0 || output !== null || (item.toolKind === "execute" && item.content.some(isText));
  const shows = item.status === "failed" || item.content.some((part) => part["type"] === "diff" || part["type"] === "terminal");
  const counts = useMemo(() => changed(item), [item]);
  const head = (
    <>
      {hasBody && <Icon name="chevron" className="chevron" />}
      <Icon name={item.toolKind} />
      <span className="hidden">{lookup(strings.tools.kinds, item.toolKind) ?? strings.tools.otherKind}: </span>
      <span className={action.command === item.title ? "tool-title tool-command" : "tool-title"} dir="auto">
        {item.title}
      </span>
      {counts && (
        <span className="diff-counts">
          <span className="diff-plus">+{counts.added}</span> <span className="diff-minus">−{counts.removed}</span>
        </span>
      )}
      <span className={`tool-status status-${status}`}>{lookup(strings.tools.states, status) ?? status}</span>
    </>
  );
  if (!hasBody) return <div className="tool tool-head">{head}</div>;
  return (
    <details className="tool" open={shows && !folded}>
      <summary className="tool-head">{head}</summary>
      <div className="tool-body">
        {item.locations.length > 0 && (
          <ul className="locations" aria-label={strings.tools.places}>
            {item.locations.map((location, index) => (
              <li key={index}>
                <Place location={location} />
              </li>
            ))}
          </ul>
        )}
        {hides && <ActionView action={{ ...action, command: showsCommand ? null : action.command, targets: [] }} title={item.title} />}
        <ToolContent content={item.content.filter((part) => !(part["type"] === "terminal" && own(item, part["terminalId"])))} terminals={terminals} toolKind={item.toolKind} command={action.command ?? item.title} running={open && live} />
        {commands.map((command) => (
          <TerminalBlock key={command.terminalId} terminal={{ ...command, command: action.command ?? item.title }} />
        ))}
        {output !== null && <CommandOutput command={action.command ?? item.title} running={open && live} {...output} />}
        {hasRaw && (
          <>
            <RawMember label={strings.tools.input} value={item.rawInput} />
            <RawMember label={strings.common.output} value={item.rawOutput} />
          </>
        )}
      </div>
    </details>
  );
});

/** The lines that the call adds and removes, if it shows changes to files. */
function changed(item: ToolItem): { added: number; removed: number } | null {
  const diffs = item.content.filter((part) => part["type"] === "diff");
  if (diffs.length === 0) return null;
  const each = diffs.map((part) => diffCounts(line(part["oldText"]), line(part["newText"]) ?? ""));
  return { added: each.reduce((sum, { added }) => sum + added, 0), removed: each.reduce((sum, { removed }) => sum + removed, 0) };
}

function isText(part: Raw): boolean {
  return part["type"] === "content" && record(part["content"])?.["type"] === "text";
}

/** A command of the agent's own is shown below, with its output. */
function own(item: ToolItem, terminalId: unknown): boolean {
  return lookup(item.commands, terminalId) !== undefined;
}

function Place({ location }: { location: ToolLocation }) {
  const shown = useShortPath(location.path);
  return (
    <code title={location.path}>
      {shown}
      {location.line != null && `:${location.line}`}
    </code>
  );
}

function RawMember({ label, value }: { label: string; value: unknown }) {
  if (value === undefined) return null;
  return (
    <>
      <p className="raw-label">{label}</p>
      <RawValue label={label} value={value} />
    </>
  );
}
