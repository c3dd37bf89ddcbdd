// One line of a change.

import { Fragment } from "react";
import { type DiffLine, shownPart } from "../model/diff";
import { size } from "../model/attachments";
import { strings } from "../strings";

const MARKS = { same: " ", removed: "-", added: "+", skipped: "…" };

export function Line({ line, number }: { line: DiffLine | null; number: number | null }) {
  if (!line) return <span className="diff-line diff-none" />;
  return (
    <span className={`diff-line diff-${line.kind}`}>
      <span className="diff-number" aria-hidden="true">
        {number ?? ""}
      </span>
      <span className="diff-mark">{MARKS[line.kind]}</span>
      <span className="diff-text">
        {line.parts.map((part, index) => {
          const { text, rest } = shownPart(part.text);
          return (
            <Fragment key={index}>
              {part.changed ? <span className="diff-word">{text}</span> : text}
              {rest > 0 && ` ${strings.tools.restOfLine(size(rest))}`}
            </Fragment>
          );
        })}
      </span>
    </span>
  );
}
