// The files that differ from the start of the session, also after changes by commands. A person reverts a file or a change in
// it, and comments on lines. The comments become one message.

import { type Dispatch, type SetStateAction, useCallback, useContext, useEffect, useState } from "react";
import { type FileChangeList, type GatewayClient, runningTurn, type SessionLog } from "@acp-gateway/client";
import { type LineComment, reviewMessage } from "../../model/review";
import { useMay } from "../../model/rights";
import { clock } from "../../model/words";
import { strings } from "../../strings";
import { Icon } from "../Icon";
import { ProblemNote } from "../ProblemNote";
import type { Act } from "../act";
import { Reached } from "../reached";
import { ChangedFile } from "./ChangedFile";

interface Props {
  client: GatewayClient;
  sessionId: string;
  log: SessionLog;
  act: Act;
  comments: LineComment[];
  onComments: Dispatch<SetStateAction<LineComment[]>>;
  onWrite(text: string): void;
}

/** While the agent works, the list is loaded again after this time. */
const EVERY_MS = 3_000;

export function ChangesPane({ client, sessionId, log, act, comments, onComments, onWrite }: Props) {
  const [list, setList] = useState<FileChangeList | null>(null);
  const [error, setError] = useState<unknown>(null);
  const reached = useContext(Reached);
  const mayComment = useMay(client, "prompt", "prompt");
  const [loads, setLoads] = useState(0);
  const reload = useCallback(() => setLoads((before) => before + 1), []);
  const running = runningTurn(log) !== null;
  const ended = log.turns.filter((turn) => turn.endedAt !== null).length;

  useEffect(() => {
    const stop = new AbortController();
    client.changes(sessionId, { signal: stop.signal }).then(
      (found) => {
        setList(found);
        setError(null);
      },
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
  }, [client, sessionId, loads, ended, reached]);

  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => !document.hidden && reload(), EVERY_MS);
    return () => clearInterval(timer);
  }, [running, reload]);

  if (list === null && error !== null) return <ProblemNote error={error} />;
  if (list === null) return <p role="status">{strings.panel.comparing}</p>;
  const sum = (of: "additions" | "deletions") => list.files.reduce((all, file) => all + (file[of] ?? 0), 0);
  return (
    <>
      <div className="panel-head">
        <span>{strings.panel.since(clock(list.since))}</span>
        {list.files.length > 0 && (
          <span className="diff-counts">
            <span className="diff-plus">+{sum("additions")}</span> <span className="diff-minus">−{sum("deletions")}</span>
          </span>
        )}
      </div>
      {error !== null && <ProblemNote error={error} />}
      {!list.complete && list.reason !== null && <p className="note note-warning">{list.reason}</p>}
      {list.files.length === 0 && <p className="panel-empty">{strings.panel.nothingChanged}</p>}
      {list.files.length > 0 && comments.length === 0 && mayComment && <p className="panel-empty">{strings.panel.howToComment}</p>}
      {list.files.map((file, index) => (
        <ChangedFile
          key={file.path}
          client={client}
          sessionId={sessionId}
          file={file}
          loads={loads + ended + reached}
          startsOpen={index === 0}
          act={act}
          comments={comments.filter((comment) => comment.path === file.path)}
          mayComment={mayComment}
          onComment={(comment) => onComments((before) => [...before, comment])}
          onRemove={(key) => onComments((before) => before.filter((comment) => comment.key !== key))}
          onReverted={reload}
        />
      ))}
      {list.more && <p className="panel-empty">{strings.panel.moreChanges}</p>}
      {comments.length > 0 && (
        <button
          className="button primary"
          type="button"
          onClick={() => {
            onWrite(reviewMessage(comments));
            onComments([]);
          }}
        >
          <Icon name="edit" /> {strings.panel.writeComments(comments.length)}
        </button>
      )}
    </>
  );
}
