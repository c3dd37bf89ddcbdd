// The folder of a new session: a new one, one that an earlier session used, or one below the workspace roots.

import { useRef, useState } from "react";
import { flushSync } from "react-dom";
import type { GatewayClient } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { lastName } from "../model/folders";
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

export function FolderChoice({ folder, onChoose, ...rest }: Props) {
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
      {(close) => (
        <FolderMenu
          {...rest}
          folder={folder}
          onChoose={(path) => {
            onChoose(path);
            close();
          }}
        />
      )}
    </Popover>
  );
}

function FolderMenu({ client, browses, recent, folder, onChoose }: Props) {
  const [other, setOther] = useState(false);
  return (
    <>
      <button className="link-button" type="button" aria-pressed={folder === null} onClick={() => onChoose(null)}>
        <Icon name="plus" /> {strings.start.newFolder}
      </button>
      {recent.length > 0 && <p className="popover-title">{strings.start.recentFolders}</p>}
      {recent.map((path) => (
        <button key={path} className="link-button" type="button" aria-pressed={folder === path} title={visible(path)} onClick={() => onChoose(path)}>
          <Icon name="folder" />
          <code>
            <bdi>{visible(path)}</bdi>
          </code>
        </button>
      ))}
      <hr className="popover-line" />
      {other ? (
        <OtherFolder client={client} browses={browses} folder={folder} onUse={onChoose} />
      ) : (
        <button className="link-button" type="button" onClick={() => setOther(true)}>
          <Icon name="search" /> {strings.start.anotherFolder}
        </button>
      )}
    </>
  );
}

interface OtherProps {
  client: GatewayClient;
  browses: boolean;
  folder: string | null;
  onUse(path: string): void;
}

/** A path that a person types or finds. It is the folder of the session when it is used. */
function OtherFolder({ client, browses, folder, onUse }: OtherProps) {
  const [path, setPath] = useState(folder ?? "");
  const field = useRef<HTMLInputElement>(null);
  // The end of a path says which folder it is.
  const open = (opened: string) => {
    flushSync(() => setPath(opened));
    if (field.current) field.current.scrollLeft = field.current.scrollWidth;
  };
  const use = () => path.trim() !== "" && onUse(path.trim());
  return (
    <div className="folder-other">
      <input
        ref={field}
        className="field-box folder-path"
        aria-label={strings.start.path}
        placeholder={strings.start.pathExample}
        autoComplete="off"
        autoFocus
        spellCheck={false}
        value={path}
        onChange={(event) => setPath(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter") return;
          // It must not start the session.
          event.preventDefault();
          use();
        }}
      />
      {browses && <FolderBrowser client={client} onOpen={open} />}
      <button className="button primary" type="button" disabled={path.trim() === ""} onClick={use}>
        {strings.start.useFolder}
      </button>
    </div>
  );
}
