// A command in a terminal with its output. A long output shows its end until it is expanded.

import { memo, useMemo, useState } from "react";
import { plainText, styledLines } from "../model/ansi";
import { size } from "../model/attachments";
import { lastPart } from "../model/parts";
import { strings } from "../strings";
import type { Terminal } from "@acp-gateway/client";
import { CopyButton } from "./CopyButton";
import { Icon } from "./Icon";
import { Styled } from "./Parts";

/** Lines of a long output that are shown at first. */
const SHOWN = 14;
/** Characters of a long output that are shown at first, and more with each press of the button. */
const FIRST = 20_000;
const STEP = 100_000;

export const TerminalBlock = memo(function TerminalBlock({ terminal }: { terminal: Terminal }) {
  const [presses, setPresses] = useState(0);
  const { output } = terminal;
  const from = lastPart(output, FIRST + presses * STEP);
  const lines = useMemo(() => styledLines(output.slice(from).replace(/\n$/, "")), [output, from]);
  const hidden = presses > 0 ? 0 : Math.max(0, lines.length - SHOWN);
  const shown = hidden > 0 ? lines.slice(hidden) : lines;
  const isEmpty = shown.every((line) => line.length === 0);
  return (
    <figure className="terminal">
      <figcaption>
        <Icon name="execute" />
        <code>{terminal.command}</code>
        {!(terminal.exited && terminal.terminalId === "" && terminal.exitCode === null) && <Ending terminal={terminal} />}
        {!isEmpty && <CopyButton text={() => plainText(output.replace(/\n$/, ""))} icon="copy" />}
      </figcaption>
      {(hidden > 0 || from > 0 || terminal.cut) && (
        <p className="terminal-more">
          {hidden > 0 || from > 0 ? (
            <button className="button small" type="button" onClick={() => setPresses(presses + 1)}>
              {from > 0 ? strings.tools.earlierPart(size(from)) : strings.tools.earlierLines(hidden)}
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
