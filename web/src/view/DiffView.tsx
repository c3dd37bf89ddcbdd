// A change to a file, line by line.

import { memo, useMemo } from "react";
import { diffLines, type DiffLine } from "../model/diff";
import { useShortPath } from "./workingFolder";

interface Props {
  path: string;
  before: string | null;
  after: string;
}

const count = (lines: DiffLine[], kind: DiffLine["kind"]) => lines.filter((line) => line.kind === kind).length;

const MARKS = { same: " ", removed: "-", added: "+", skipped: "…" };

export const DiffView = memo(function DiffView({ path, before, after }: Props) {
  const shown = useShortPath(path);
  const lines = useMemo(() => diffLines(before, after), [before, after]);
  return (
    <figure className="diff">
      <figcaption>
        <code title={path}>{shown}</code>
        <span className="diff-counts">
          {before === null && "new file "}
          <span className="diff-plus">+{count(lines, "added")}</span> <span className="diff-minus">−{count(lines, "removed")}</span>
        </span>
      </figcaption>
      <div className="diff-lines" tabIndex={0} role="region" aria-label={`Changes to ${shown}`}>
        {lines.map((line, index) => (
          <div key={index} className={`diff-line diff-${line.kind}`}>
            <span className="diff-number" aria-hidden="true">
              {line.after ?? line.before ?? ""}
            </span>
            <span className="diff-mark">{MARKS[line.kind]}</span>
            <span className="diff-text">{line.text}</span>
          </div>
        ))}
      </div>
    </figure>
  );
});
