// A command in a terminal with its output. A long output shows its end until it is expanded.

import { memo, useMemo, useState } from "react";
import type { Terminal } from "../model/state";
import { paper } from "../model/terminal";

/** Lines of a long output that are shown at first. */
const SHOWN = 14;

export const TerminalBlock = memo(function TerminalBlock({ terminal }: { terminal: Terminal }) {
  const [whole, setWhole] = useState(false);
  const lines = useMemo(() => paper(terminal.output).replace(/\n$/, "").split("\n"), [terminal.output]);
  const hidden = whole ? 0 : Math.max(0, lines.length - SHOWN);
  const shown = (hidden > 0 ? lines.slice(hidden) : lines).join("\n");
  return (
    <figure className="terminal">
      <figcaption>
        <code>{terminal.command}</code>
        <span>{ending(terminal)}</span>
      </figcaption>
      {(hidden > 0 || terminal.cut) && (
        <p className="terminal-more">
          {hidden > 0 ? (
            <button className="button small" type="button" onClick={() => setWhole(true)}>
              Show {hidden === 1 ? "one earlier line" : `${hidden} earlier lines`}
            </button>
          ) : (
            "What came earlier is not held here."
          )}
        </p>
      )}
      {(shown !== "" || !terminal.exited) && (
        <pre className="output" tabIndex={0} role="group" aria-label="Output of the command">
          {shown}
        </pre>
      )}
    </figure>
  );
});

function ending(terminal: Terminal): string {
  if (!terminal.exited) return "running";
  if (terminal.signal !== null) return `ended by ${terminal.signal}`;
  return terminal.exitCode === null ? "ended" : `exit ${terminal.exitCode}`;
}
