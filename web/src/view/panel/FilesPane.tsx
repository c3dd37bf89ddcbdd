// The files of the session's folder, and a preview of one.

import { useContext, useEffect, useState } from "react";
import { ApiProblem, type FileEntry, type GatewayClient, known } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { strings } from "../../strings";
import { CopyButton } from "../CopyButton";
import { Highlighted } from "../Highlighted";
import { Icon } from "../Icon";
import { useParts } from "../Parts";
import { ProblemNote } from "../ProblemNote";
import { Reached } from "../reached";

interface Props {
  client: GatewayClient;
  sessionId: string;
}

/** A preview shows at most this many bytes. */
const PREVIEW_BYTES = 256 * 1024;

export function FilesPane({ client, sessionId }: Props) {
  const [folder, setFolder] = useState("");
  const [file, setFile] = useState<string | null>(null);
  const reached = useContext(Reached);
  if (file !== null) return <Preview client={client} sessionId={sessionId} path={file} onBack={() => setFile(null)} />;
  return <FolderRows key={`${reached} ${folder}`} client={client} sessionId={sessionId} folder={folder} onFolder={setFolder} onFile={setFile} />;
}

interface FolderProps extends Props {
  folder: string;
  onFolder(path: string): void;
  onFile(path: string): void;
}

function FolderRows({ client, sessionId, folder, onFolder, onFile }: FolderProps) {
  const [files, setFiles] = useState<FileEntry[] | null>(null);
  const [cursor, setCursor] = useState<string | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    const stop = new AbortController();
    client.files(sessionId, { ...(folder === "" ? {} : { path: folder }), cursor, limit: 200 }, { signal: stop.signal }).then(
      (page) => {
        setFiles((before) => [...(before ?? []), ...page.files]);
        setNext(page.nextCursor ?? null);
      },
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
  }, [client, sessionId, folder, cursor]);

  if (error !== null) return <ProblemNote error={error} />;
  if (files === null) return <p role="status">{strings.panel.loading}</p>;
  const isFolder = ({ type }: FileEntry) => known(type) === "folder";
  const opens = (entry: FileEntry) => (isFolder(entry) ? () => onFolder(entry.path) : known(entry.type) === "file" ? () => onFile(entry.path) : null);
  return (
    <>
      {folder !== "" && (
        <div className="panel-head">
          <code>{visible(folder)}</code>
        </div>
      )}
      <ul className="file-rows" aria-label={folder === "" ? strings.panel.filesOfSession : strings.panel.filesIn(visible(folder))}>
        {folder !== "" && (
          <li>
            <button type="button" onClick={() => onFolder(folder.split("/").slice(0, -1).join("/"))}>
              <Icon name="up" /> {strings.common.folderAbove}
            </button>
          </li>
        )}
        {[...files.filter(isFolder), ...files.filter((entry) => !isFolder(entry))].map((entry) => (
          <li key={entry.path}>
            <button type="button" disabled={opens(entry) === null} onClick={opens(entry) ?? undefined}>
              <Icon name={isFolder(entry) ? "folder" : "file"} /> {visible(entry.name)}
            </button>
          </li>
        ))}
      </ul>
      {files.length === 0 && <p className="panel-empty">{strings.panel.emptyFolder}</p>}
      {next !== null && (
        <button className="button small" type="button" onClick={() => setCursor(next)}>
          {strings.common.showMore}
        </button>
      )}
    </>
  );
}

function Preview({ client, sessionId, path, onBack }: Props & { path: string; onBack(): void }) {
  const reached = useContext(Reached);
  const [text, setText] = useState<string | null>(null);
  const [isCut, setCut] = useState(false);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    const stop = new AbortController();
    client
      .readFile(sessionId, path, { range: `bytes=0-${PREVIEW_BYTES - 1}`, signal: stop.signal })
      .then(async (response) => {
        setCut(Number(response.headers.get("Content-Range")?.split("/")[1] ?? 0) > PREVIEW_BYTES);
        setText(await response.text());
        setError(null);
      })
      .catch((reason: unknown) => {
        if (stop.signal.aborted) return;
        // An empty file has no range.
        if (reason instanceof ApiProblem && reason.status === 416) setText("");
        else setError(reason);
      });
    return () => stop.abort();
  }, [client, sessionId, path, reached]);

  return (
    <>
      <div className="panel-head">
        <button className="button small" type="button" autoFocus onClick={onBack}>
          {strings.panel.allFiles}
        </button>
        {text !== null && <CopyButton text={text} icon="copy" />}
      </div>
      <code className="change-path">{visible(path)}</code>
      {error !== null && <ProblemNote error={error} />}
      {isCut && <p className="panel-empty">{strings.panel.onlyBeginning}</p>}
      {text !== null && (text.includes("\0") ? <p className="panel-empty">{strings.panel.noText}</p> : <Text path={path} text={text} />)}
    </>
  );
}

function Text({ path, text }: { path: string; text: string }) {
  const { parts, more } = useParts(text);
  return (
    <>
      <pre className="file-text" tabIndex={0} role="region" aria-label={strings.panel.contentOf(visible(path))}>
        {parts.map((part, index) => (
          <Highlighted key={index} language={parts.length === 1 ? (path.split(".").at(-1) ?? "") : ""} text={part} />
        ))}
      </pre>
      {more}
    </>
  );
}
