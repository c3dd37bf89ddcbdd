// Copies a text. The button says for two seconds whether that worked.

import { useEffect, useState } from "react";
import { strings } from "../strings";
import { copy } from "./clipboard";
import { Icon } from "./Icon";

const SHOWN_MS = 2_000;

interface Props {
  /** The text, or a function for a text that is made only if it is copied. */
  text: string | (() => string);
  label?: string;
  /** The icon that stands for the label. Without it, the label is visible. */
  icon?: "copy" | "link";
}

export function CopyButton({ text, label = strings.common.copy, icon }: Props) {
  const [state, setState] = useState<"ready" | "done" | "failed">("ready");
  const words = { ready: label, done: strings.common.copied, failed: strings.common.copyFailed };

  useEffect(() => {
    if (state === "ready") return;
    const timer = setTimeout(() => setState("ready"), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [state]);

  return (
    <button
      className={icon ? "icon-button" : "link-button"}
      type="button"
      title={icon && words[state]}
      onClick={() => void copy(typeof text === "string" ? text : text()).then((done) => setState(done ? "done" : "failed"))}
    >
      {icon && <Icon name={{ ready: icon, done: "check", failed: "warning" }[state]} />}
      <span className={icon && "hidden"} aria-live="polite">
        {words[state]}
      </span>
    </button>
  );
}
