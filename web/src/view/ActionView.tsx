// The action of a tool call: the whole command or path, the folder it runs in and, on demand, its raw input.

import { useContext, useMemo, useState } from "react";
import type { Action } from "../model/action";
import { strings } from "../strings";
import { visible } from "@acp-gateway/client/read";
import { Icon } from "./Icon";
import { MoreButton, Verbatim } from "./Parts";
import { Words } from "./Words";
import { WorkingFolder } from "./workingFolder";

interface Props {
  action: Action;
  /** The call's title is shown beside it, so an action with the same text is omitted. */
  title: string;
  /** Whether the raw input is open at first. */
  opensRaw?: boolean;
}

/** A longer command scrolls. */
const MAX_LINES = 12;

export function ActionView({ action, title, opensRaw = false }: Props) {
  const folder = useContext(WorkingFolder);
  const targets = action.targets.filter((target) => target !== title);
  const { command, env, input } = action;
  const lines = command?.split("\n").length ?? 0;
  return (
    <div className="action">
      {command !== null && (
        <pre className="output" tabIndex={0} role="group" aria-label={strings.tools.command}>
          {command}
        </pre>
      )}
      {lines > MAX_LINES && <p className="permission-note">{strings.tools.commandLines(lines)}</p>}
      {env.map((variable, index) => (
        <p key={index} className="action-row">
          <Icon name="settings" />
          <span>
            <Words text={strings.tools.runsWith}>
              <code>{variable}</code>
            </Words>
          </span>
        </p>
      ))}
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
        <details className="action-raw" open={opensRaw}>
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
  const [whole, setWhole] = useState(false);
  const { text, cut } = useMemo(() => jsonOf(value, whole), [value, whole]);
  return (
    <>
      <Verbatim label={label} text={text} />
      {cut > 0 && <MoreButton rest={cut} onPress={() => setWhole(true)} />}
    </>
  );
}

/** Characters of a text in a value that are shown at first. */
const MAX_TEXT = 20_000;

/** `cut`: the characters of long texts that are missing. The JSON of many megabytes takes long. */
function jsonOf(value: unknown, whole: boolean): { text: string; cut: number } {
  if (typeof value === "string") return { text: value, cut: 0 };
  let cut = 0;
  const shortened = (_: string, member: unknown) => {
    if (whole || typeof member !== "string" || member.length <= MAX_TEXT) return member;
    cut += member.length - MAX_TEXT;
    return `${member.slice(0, MAX_TEXT)}…`;
  };
  return { text: JSON.stringify(value, shortened, 2), cut };
}
