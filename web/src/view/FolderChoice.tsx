// The folder of a new session: a new one, one that an earlier session used, or one below the workspace roots.

import { useState } from "react";
import type { GatewayClient } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { FolderBrowser } from "./FolderBrowser";

interface Props {
  client: GatewayClient;
  /** Whether the gateway can list the folders. Those of other hosts are unknown to it. */
  browses: boolean;
  recent: string[];
  /** Null: the gateway creates a folder. */
  folder: string | null;
  onChoose(folder: string | null): void;
}

const NEW = "new";
const OTHER = "other";

export function FolderChoice({ client, browses, recent, folder, onChoose }: Props) {
  const [other, setOther] = useState(false);
  const known = folder !== null && recent.includes(folder);
  const value = other ? OTHER : known ? `at${recent.indexOf(folder)}` : NEW;

  function select(chosen: string) {
    setOther(chosen === OTHER);
    if (chosen === NEW) onChoose(null);
    else if (chosen === OTHER) onChoose(folder ?? "");
    else onChoose(recent[Number(chosen.slice(2))] ?? null);
  }

  return (
    <>
      <label className="option folder">
        <span>Folder</span>
        <select value={value} onChange={(event) => select(event.target.value)}>
          <option value={NEW}>New folder</option>
          {recent.length > 0 && (
            <optgroup label="Recent">
              {recent.map((path, index) => (
                <option key={path} value={`at${index}`}>
                  {visible(path)}
                </option>
              ))}
            </optgroup>
          )}
          <option value={OTHER}>Another folder…</option>
        </select>
      </label>
      {other && (
        <div className="folder-other">
          <input
            className="folder-path"
            aria-label="Path of the folder"
            placeholder="/path/to/folder"
            autoComplete="off"
            spellCheck={false}
            value={folder ?? ""}
            onChange={(event) => onChoose(event.target.value)}
          />
          {browses && <FolderBrowser client={client} onChoose={onChoose} />}
        </div>
      )}
    </>
  );
}
