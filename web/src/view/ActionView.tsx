// The action of a tool call: the whole command or path, the folder it runs in and, on demand, its raw input.

import { useContext } from "react";
import type { Action } from "../model/action";
import { strings } from "../strings";
import { visible } from "@acp-gateway/client/read";
import { Icon } from "./Icon";
import { Words } from "./Words";
import { WorkingFolder } from "./workingFolder";

interface Props {
  action: Action;
  /** The call's title is shown beside it, so an action with the same text is omitted. */
  title: string;
}

export function ActionView({ action, title }: Props) {
  const folder = useContext(WorkingFolder);
  const targets = action.targets.filter((target) => target !== title);
  const { command, input } = action;
  return (
    <div className="action">
      {command !== null && (
        <pre className="output" tabIndex={0} role="group" aria-label={strings.tools.command}>
          {command}
        </pre>
      )}
      {targets.map((target) => (
        <p key={target} className="action-row">
          <Icon name="file" />
          <code>{target}</code>
        </p>
      ))}
      {(command !== null || action.cwd !== null) && (action.cwd ?? folder) && (
        <p className="action-row">
          <Icon name="folder" />
          <span>
            <Words text={strings.tools.runsIn}>
              <code>{action.cwd ?? visible(folder ?? "")}</code>
            </Words>
          </span>
        </p>
      )}
      {input != null && (
        <details className="action-raw">
          <summary>
            <Icon name="chevron" className="chevron" /> {strings.tools.rawInput}
          </summary>
          <RawValue label={strings.tools.rawInput} value={input} />
        </details>
      )}
    </div>
  );
}

export function RawValue({ label, value }: { label: string; value: unknown }) {
  return (
    <pre className="output" tabIndex={0} role="group" aria-label={label}>
      {visible(typeof value === "string" ? value : JSON.stringify(value, null, 2))}
    </pre>
  );
}
