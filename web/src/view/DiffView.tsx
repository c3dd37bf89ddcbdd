// A change to a file, in one column or side by side. The choice applies to all diffs.

import { memo, useMemo, useSyncExternalStore } from "react";
import { Choice } from "../model/choice";
import { diffLines, sideBySide, type DiffLine } from "../model/diff";
import { strings } from "../strings";
import { Line } from "./DiffLine";
import { Icon } from "./Icon";
import { useShortPath } from "./workingFolder";

interface Props {
  path: string;
  before: string | null;
  after: string;
}

const layoutChoice = new Choice<"unified" | "split">("diff", ["unified", "split"]);

/** Narrower windows have no place for two columns. */
const wide = matchMedia("(min-width: 900px)");
const isWide = () => wide.matches;

function followWidth(changed: () => void): () => void {
  wide.addEventListener("change", changed);
  return () => wide.removeEventListener("change", changed);
}

const count = (lines: DiffLine[], kind: DiffLine["kind"]) => lines.filter((line) => line.kind === kind).length;

export const DiffView = memo(function DiffView({ path, before, after }: Props) {
  const shown = useShortPath(path);
  const lines = useMemo(() => diffLines(before, after), [before, after]);
  const chosen = useSyncExternalStore(layoutChoice.subscribe, layoutChoice.value);
  const hasPlace = useSyncExternalStore(followWidth, isWide) && before !== null;
  const split = hasPlace && chosen === "split";
  return (
    <figure className="diff">
      <figcaption>
        <Icon name="file" />
        <code title={path}>{shown}</code>
        <span className="diff-counts">
          {before === null && `${strings.tools.newFile} `}
          <span className="diff-plus">+{count(lines, "added")}</span> <span className="diff-minus">−{count(lines, "removed")}</span>
        </span>
        {hasPlace && (
          <span className="figure-actions">
            <button className="link-button" type="button" aria-pressed={split} onClick={() => layoutChoice.choose(split ? "unified" : "split")}>
              {strings.tools.sideBySide}
            </button>
          </span>
        )}
      </figcaption>
      <div className={split ? "diff-lines diff-split" : "diff-lines"} tabIndex={0} role="group" aria-label={strings.tools.changesTo(shown)}>
        {split ? <Columns lines={lines} /> : lines.map((line, index) => <Line key={index} line={line} number={line.after ?? line.before} />)}
      </div>
    </figure>
  );
});

function Columns({ lines }: { lines: DiffLine[] }) {
  return sideBySide(lines).map(({ left, right }, index) => (
    <div key={index} className="diff-row">
      {left === right && left?.kind === "skipped" ? (
        <Line line={left} number={null} />
      ) : (
        <>
          <Line line={left} number={left?.before ?? null} />
          <Line line={right} number={right?.after ?? null} />
        </>
      )}
    </div>
  ));
}
