// The parts of a long text that are shown, and the button for more of them.

import { memo, useMemo, useState, type ReactNode } from "react";
import { visible } from "@acp-gateway/client/read";
import { styledLines, type Span } from "../model/ansi";
import { size as sizeOf } from "../model/attachments";
import { partsOf } from "../model/parts";
import { strings } from "../strings";

/** Characters of a part, and the parts that are shown at first and with each press of the button. */
const SIZE = 20_000;
const STEP = 5;
/** A part with more changes of style is shown without styles. */
const MAX_SPANS = 4000;

export interface Parts {
  parts: string[];
  /** The button for the next parts. Null after the last one. */
  more: ReactNode;
}

export function useParts(text: string, size = SIZE): Parts {
  const [presses, setPresses] = useState(1);
  const { parts, rest } = useMemo(() => partsOf(text, size, presses * STEP), [text, size, presses]);
  return { parts, more: rest > 0 && <MoreButton rest={rest} onPress={() => setPresses(presses + 1)} /> };
}

/** `rest`: the number of characters that are not shown. */
export function MoreButton({ rest, onPress }: { rest: number; onPress(): void }) {
  return (
    <button className="button small more-text" type="button" onClick={onPress}>
      {strings.content.showRest(sizeOf(rest))}
    </button>
  );
}

interface OutputProps {
  label: string;
  text: string;
}

/** The output of a program: its lines and colours, and nothing else. */
export function Output({ label, text }: OutputProps) {
  const { parts, more } = useParts(text);
  return (
    <>
      <pre className="output" tabIndex={0} role="group" aria-label={label}>
        {parts.map((part, index) => (
          <Coloured key={index} text={part} />
        ))}
      </pre>
      {more}
    </>
  );
}

/** A text without control sequences of a terminal: an attached file, or a value. Invisible characters are shown. */
export function Verbatim({ label, text }: OutputProps) {
  const { parts, more } = useParts(text);
  return (
    <>
      <pre className="output" tabIndex={0} role="group" aria-label={label}>
        {visible(parts.join(""))}
      </pre>
      {more}
    </>
  );
}

export const Coloured = memo(function Coloured({ text }: { text: string }) {
  return <Styled lines={useMemo(() => styledLines(text), [text])} />;
});

export function Styled({ lines }: { lines: Span[][] }) {
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

export function textOf(lines: Span[][]): string {
  return lines.map((line) => line.map((span) => span.text).join("")).join("\n");
}
