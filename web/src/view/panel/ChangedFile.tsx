// A changed file with its changes.

import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import { type FileChange, type FileChangeText, type GatewayClient, known } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { type DiffLine, type Hunk, hunksOf, textOf, withoutHunk } from "../../model/diff";
import type { LineComment } from "../../model/review";
import { useMay } from "../../model/rights";
import { strings } from "../../strings";
import { Line } from "../DiffLine";
import { Icon } from "../Icon";
import { Popover } from "../Popover";
import { ProblemNote } from "../ProblemNote";
import type { Act } from "../act";
import { onEscape } from "../escape";
import { TextForm } from "../TextForm";

interface Props {
  client: GatewayClient;
  sessionId: string;
  file: FileChange;
  /** Changes when the file may have changed. */
  loads: number;
  startsOpen: boolean;
  act: Act;
  comments: LineComment[];
  /** Whether the user may send the comments. */
  mayComment: boolean;
  onComment(comment: LineComment): void;
  onRemove(key: string): void;
  onReverted(): void;
}

export function ChangedFile({ client, sessionId, file, loads, startsOpen, act, comments, mayComment, onComment, onRemove, onReverted }: Props) {
  const [open, setOpen] = useState(startsOpen);
  const [text, setText] = useState<FileChangeText | null>(null);
  const [error, setError] = useState<unknown>(null);
  /** A person is asked before all changes to the file are lost. */
  const [asks, setAsks] = useState(false);
  const opener = useRef<HTMLButtonElement>(null);
  const isNew = known(file.kind) === "added";
  const mayRevert = useMay(client, "files", "prompt");
  const shows = open && !file.binary && !file.tooLarge;

  useEffect(() => {
    if (!shows) return;
    const stop = new AbortController();
    client.change(sessionId, file.path, { signal: stop.signal }).then(
      (found) => {
        setText(found);
        setError(null);
      },
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
  }, [client, sessionId, file.path, shows, loads]);

  const revert = async () => {
    const current = text ?? (await client.change(sessionId, file.path));
    if (await act(() => client.revertChange(sessionId, file.path, current.etag))) onReverted();
  };
  const revertHunk = async (hunk: Hunk) => {
    // The file has no other lines.
    if (isNew) return setAsks(true);
    if (text?.etag == null) return revert();
    const { etag } = text;
    const content = withoutHunk(text.oldText, text.newText, hunk);
    if (await act(() => client.writeFile(sessionId, file.path, content, { ifMatch: etag }))) onReverted();
  };

  return (
    <section className="change" aria-label={visible(file.path)}>
      <div className="change-head">
        <button className="row-opener change-open" type="button" ref={opener} aria-expanded={open} onClick={() => setOpen(!open)}>
          <Icon name="chevron" className="chevron" />
          <span className="change-path" title={visible(file.path)}>
            {visible(file.path)}
          </span>
          <span className="diff-counts">
            {strings.panel.changeKinds[file.kind]}
            {file.additions !== null && <span className="diff-plus">+{file.additions}</span>} {file.deletions !== null && <span className="diff-minus">−{file.deletions}</span>}
          </span>
        </button>
        {mayRevert && (
          <Popover button={<Icon name="more" />} className="icon-button" label={strings.panel.moreAbout(visible(file.path))} name={strings.panel.thisFile} side="right">
            {(close) => (
              <button
                className="link-button"
                type="button"
                onClick={() => {
                  close();
                  // A deleted file returns without a loss.
                  if (known(file.kind) === "deleted") void act(revert);
                  else setAsks(true);
                }}
              >
                <Icon name="undo" /> {isNew ? strings.panel.deleteNewFile : strings.panel.revertFile}
              </button>
            )}
          </Popover>
        )}
      </div>
      {asks && (
        <ConfirmRevert
          isNew={isNew}
          onRevert={() => {
            setAsks(false);
            void act(revert);
          }}
          onKeep={() => {
            setAsks(false);
            opener.current?.focus();
          }}
        />
      )}
      {open && (file.binary || file.tooLarge) && <p className="comment panel-empty">{file.binary ? strings.panel.noText : strings.panel.tooLarge}</p>}
      {shows && error !== null && <ProblemNote error={error} />}
      {shows && text && <Hunks text={text} path={file.path} comments={comments} mayComment={mayComment} onComment={onComment} onRemove={onRemove} onRevert={mayRevert ? (hunk) => void revertHunk(hunk) : null} />}
    </section>
  );
}

function ConfirmRevert({ isNew, onRevert, onKeep }: { isNew: boolean; onRevert(): void; onKeep(): void }) {
  const question = isNew ? strings.panel.askDelete : strings.panel.askRevert;
  const escape = (event: KeyboardEvent) => {
    // Escape closes the question alone, and not the panel with it.
    if (event.key === "Escape") event.stopPropagation();
    onEscape(event, onKeep);
  };
  return (
    <div className="confirm" role="group" aria-label={question} onKeyDown={escape}>
      <span>{question}</span>
      <button className="button small danger" type="button" onClick={onRevert}>
        {isNew ? strings.panel.confirmDelete : strings.panel.confirmRevert}
      </button>
      <button className="button small" type="button" autoFocus onClick={onKeep}>
        {strings.panel.keepFile}
      </button>
    </div>
  );
}

interface HunksProps {
  text: FileChangeText;
  path: string;
  comments: LineComment[];
  mayComment: boolean;
  onComment(comment: LineComment): void;
  onRemove(key: string): void;
  /** Null if the user may not change files of the session. */
  onRevert: ((hunk: Hunk) => void) | null;
}

function Hunks({ text, path, comments, mayComment, onComment, onRemove, onRevert }: HunksProps) {
  const hunks = useMemo(() => hunksOf(text.oldText, text.newText), [text]);
  const [asks, setAsks] = useState<string | null>(null);
  const pressed = useRef<HTMLElement>(null);
  const leave = () => {
    setAsks(null);
    pressed.current?.focus();
  };
  if (hunks.length === 0) return <p className="comment panel-empty">{strings.panel.onlyLineEnd}</p>;
  return hunks.map((hunk) => (
    <div key={hunk.start} className="hunk">
      <div className="hunk-head">
        <span>{strings.panel.lineNumber(hunk.start)}</span>
        {onRevert && (
          <button className="link-button" type="button" onClick={() => onRevert(hunk)}>
            {strings.panel.revert}
          </button>
        )}
      </div>
      <div className="diff-lines">
        {hunk.lines.map((line, index) => {
          const place = placeOf(line);
          return (
            <div key={index}>
              <button className="line-comment" type="button" title={strings.panel.commentOnLine} disabled={!mayComment} aria-expanded={asks === place} onClick={(event) => {
                  pressed.current = event.currentTarget;
                  setAsks(asks === place ? null : place);
                }}
              >
                <Line line={line} number={line.after ?? line.before} />
              </button>
              {comments
                .filter((comment) => placeOf(line) === `${comment.removed ? "-" : "+"}${comment.line}`)
                .map((comment) => (
                  <div key={comment.key} className="comment">
                    <p>{comment.text}</p>
                    <button className="icon-button" type="button" title={strings.panel.removeComment} onClick={() => onRemove(comment.key)}>
                      <Icon name="close" />
                      <span className="hidden">{strings.panel.removeComment}</span>
                    </button>
                  </div>
                ))}
              {asks === place && (
                <TextForm
                  className="comment-form"
                  label={strings.panel.comment}
                  text=""
                  save={strings.panel.addComment}
                  onCancel={leave}
                  onSave={(words) => {
                    leave();
                    onComment({ key: `${path} ${place} ${Date.now()}`, path, line: (line.after ?? line.before)!, removed: line.after === null, code: textOf(line), text: words });
                  }}
                />
              )}
            </div>
          );
        })}
      </div>
    </div>
  ));
}

/** A line of the new text, or a removed one. */
function placeOf(line: DiffLine): string {
  return line.after === null ? `-${line.before}` : `+${line.after}`;
}
