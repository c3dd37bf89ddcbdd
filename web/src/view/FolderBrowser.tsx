// The folders below the workspace roots, level by level.

import { useEffect, useRef, useState } from "react";
import type { GatewayClient, Folder } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { strings } from "../strings";
import { Icon } from "./Icon";
import { ProblemNote } from "./ProblemNote";
import { isEditable } from "./focus";

interface Props {
  client: GatewayClient;
  /** Called with each folder that is opened. */
  onOpen(path: string): void;
}

interface Level {
  path: string | null;
  parent: string | null;
  folders: Folder[];
  next: string | null;
}

export function FolderBrowser({ client, onOpen }: Props) {
  const [at, setAt] = useState<{ path: string | null; cursor: string | null }>({ path: null, cursor: null });
  const [level, setLevel] = useState<Level | null>(null);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    const stop = new AbortController();
    client.folders(at.path, { cursor: at.cursor, limit: 200 }, { signal: stop.signal }).then(
      (page) => {
        setError(null);
        setLevel((before) => ({
          path: page.path ?? null,
          parent: page.parent ?? null,
          folders: at.cursor === null ? page.folders : [...(before?.folders ?? []), ...page.folders],
          next: page.nextCursor ?? null,
        }));
      },
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
  }, [client, at]);

  // The pressed button is not in the next level.
  const list = useRef<HTMLUListElement>(null);
  const opened = useRef(false);
  useEffect(() => {
    if (opened.current && !isEditable(document.activeElement)) list.current?.querySelector("button")?.focus();
    opened.current = false;
  }, [level]);

  function open(path: string | null) {
    opened.current = true;
    setAt({ path, cursor: null });
    if (path !== null) onOpen(path);
  }

  if (error !== null) return <ProblemNote error={error} />;
  if (level === null) return null;
  return (
    <ul className="folders" ref={list} aria-label={level.path === null ? strings.start.roots : strings.start.foldersIn(visible(level.path))}>
      {level.path !== null && (
        <li>
          <button type="button" onClick={() => open(level.parent)}>
            <Icon name="up" />
            {level.parent === null ? strings.start.allRoots : strings.common.folderAbove}
          </button>
        </li>
      )}
      {level.folders.map((folder) => (
        <li key={folder.path}>
          <button type="button" onClick={() => open(folder.path)}>
            <Icon name="folder" />
            <code>{visible(level.path === null ? folder.path : folder.name)}</code>
          </button>
        </li>
      ))}
      {level.folders.length === 0 && <li className="folders-empty">{strings.start.noFolders}</li>}
      {level.next !== null && (
        <li>
          <button type="button" onClick={() => setAt({ path: level.path, cursor: level.next })}>
            {strings.common.showMore}
          </button>
        </li>
      )}
    </ul>
  );
}
