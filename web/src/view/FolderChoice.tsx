// The folder of a new session: a new one, one that an earlier session used, or one below the workspace roots.

import { useState } from "react";
import type { GatewayClient } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { strings } from "../strings";
import { FolderBrowser } from "./FolderBrowser";
import { Icon } from "./Icon";
import { Popover } from "./Popover";

interface Props {
  client: GatewayClient;
  /** Whether the gateway can list the folders. Those of other hosts are unknown to it. */
  browses: boolean;
  recent: string[];
  /** Null: the gateway creates a folder. */
  folder: string | null;
  onChoose(folder: string | null): void;
}

export function FolderChoice({ client, browses, recent, folder, onChoose }: Props) {
  const [other, setOther] = useState(false);
  const button = (
    <>
      <Icon name="folder" />
      <span className="hidden">{strings.start.folderLabel}</span>
      {folder === null ? strings.start.newFolder : <code>{visible(lastName(folder))}</code>}
      <Icon name="open" />
    </>
  );
  return (
    <Popover button={button} name={strings.start.folderMenu} boxClassName="folder-menu">
      {(close) => {
        const choose = (path: string | null) => {
          onChoose(path);
          close();
        };
        return (
          <>
            <button className="link-button" type="button" aria-pressed={folder === null} onClick={() => choose(null)}>
              <Icon name="plus" /> {strings.start.newFolder}
            </button>
            {recent.length > 0 && <p className="popover-title">{strings.start.recentFolders}</p>}
            {recent.map((path) => (
              <button key={path} className="link-button" type="button" aria-pressed={folder === path} title={visible(path)} onClick={() => choose(path)}>
                <Icon name="folder" />
                <code>
                  <bdi>{visible(path)}</bdi>
                </code>
              </button>
            ))}
            <hr className="popover-line" />
            {other ? (
              <div className="folder-other">
                <input
                  className="field-box folder-path"
                  aria-label={strings.start.path}
                  placeholder={strings.start.pathExample}
                  autoComplete="off"
                  autoFocus
                  spellCheck={false}
                  value={folder ?? ""}
                  onChange={(event) => onChoose(event.target.value === "" ? null : event.target.value)}
                  onKeyDown={(event) => {
                    if (event.key !== "Enter") return;
                    // It must not start the session.
                    event.preventDefault();
                    close();
                  }}
                />
                {browses && <FolderBrowser client={client} onChoose={onChoose} />}
                <button className="button primary" type="button" disabled={folder === null} onClick={close}>
                  {strings.start.useFolder}
                </button>
              </div>
            ) : (
              <button className="link-button" type="button" onClick={() => setOther(true)}>
                <Icon name="search" /> {strings.start.anotherFolder}
              </button>
            )}
          </>
        );
      }}
    </Popover>
  );
}

function lastName(path: string): string {
  return path.replace(/\/+$/, "").split("/").at(-1) || path;
}
