// The state of a session as an icon and a word.

import type { SessionMark } from "../model/sessionState";
import { Icon } from "./Icon";

const ICONS = { wait: "waiting", good: "check", bad: "failed" };

export function SessionStateMark({ mark }: { mark: SessionMark }) {
  if (mark.word === null) return null;
  return (
    <span className={`session-state state-${mark.tone}`}>
      {mark.tone === "live" ? <span className="spinner" /> : mark.tone !== "none" && <Icon name={ICONS[mark.tone]} />}
      {mark.word}
    </span>
  );
}
