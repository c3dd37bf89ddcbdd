// A command in a terminal with its output. A long output shows its end until it is expanded.

import { memo, useMemo, useState } from "react";
import { styledLines, type Span } from "../model/ansi";
import { strings } from "../strings";
import type { Terminal } from "@acp-gateway/client";
import { CopyButton } from "./CopyButton";
import { Icon } from "./Icon";

/** Lines of a long output that are shown at first. */
const SHOWN = 14;
/** An output with more changes of style is shown without styles. */
const MAX_SPANS = 4000;

export const TerminalBlock = memo(function TerminalBlock({ terminal }: { terminal: Terminal }) {
  const [whole, setWhole] = useState(false);
  const lines = useMemo(() => styledLines(terminal.output.replace(/\n$/, "")), [terminal.output]);
  const hidden = whole ? 0 : Math.max(0, lines.length - SHOWN);
  const shown = hidden > 0 ? lines.slice(hidden) : lines;
  const isEmpty = shown.every((line) => line.length === 0);
  return (
    <figure className="terminal">
      <figcaption>
        <Icon name="execute" />
        <code>{terminal.command}</code>
        <Ending terminal={terminal} />
        {!isEmpty && <CopyButton text={() => textOf(lines)} icon="copy" />}
      </figcaption>
      {(hidden > 0 || terminal.cut) && (
        <p className="terminal-more">
          {hidden > 0 ? (
            <button className="button small" type="button" onClick={() => setWhole(true)}>
              {strings.tools.earlierLines(hidden)}
            </button>
          ) : (
            strings.tools.earlierIsGone
          )}
        </p>
      )}
      {(!isEmpty || !terminal.exited) && (
        <pre className="output" tabIndex={0} role="group" aria-label={strings.tools.commandOutput}>
          <Styled lines={shown} />
        </pre>
      )}
    </figure>
  );
});

function Styled({ lines }: { lines: Span[][] }) {
  const count = lines.reduce((sum, line) => sum + line.length, 0);
  if (count > MAX_SPANS) return textOf(lines);
  return lines.map((line, index) => [
    index > 0 && "\n",
    ...line.map((span, at) =>
      span.style === "" ? (
        span.text
      ) : (
        <span key={`${index} ${at}`} className={span.style}>
          {span.text}
        </span>
      ),
    ),
  ]);
}

function textOf(lines: Span[][]): string {
  return lines.map((line) => line.map((span) => span.text).join("")).join("\n");
}

function Ending({ terminal }: { terminal: Terminal }) {
  const failed = terminal.exited && (terminal.signal !== null || (terminal.exitCode ?? 0) !== 0);
  const tone = !terminal.exited ? "state-live" : failed ? "state-bad" : terminal.exitCode === 0 ? "state-good" : "";
  return (
    <span className={`terminal-end ${tone}`}>
      {!terminal.exited ? <span className="spinner" aria-hidden="true" /> : failed ? <Icon name="failed" /> : terminal.exitCode === 0 && <Icon name="check" />}
      {ending(terminal)}
    </span>
  );
}

function ending(terminal: Terminal): string {
  if (!terminal.exited) return strings.tools.running;
  if (terminal.signal !== null) return strings.tools.endedBy(terminal.signal);
  return terminal.exitCode === null ? strings.tools.ended : strings.tools.exit(terminal.exitCode);
}
