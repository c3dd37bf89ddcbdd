// One line of a change.

import type { DiffLine } from "../model/diff";

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
        {line.parts.map((part, index) =>
          part.changed ? (
            <span key={index} className="diff-word">
              {part.text}
            </span>
          ) : (
            part.text
          ),
        )}
      </span>
    </span>
  );
}
