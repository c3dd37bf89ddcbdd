// A text of `strings` with elements in it: code between backticks, and the children in place of `{}`.

import { Fragment, type ReactNode } from "react";

export function Words({ text, children }: { text: string; children?: ReactNode }) {
  return text.split(/(`[^`]*`|\{\})/).map((part, index) => {
    if (part === "{}") return <Fragment key={index}>{children}</Fragment>;
    return part.startsWith("`") ? <code key={index}>{part.slice(1, -1)}</code> : part;
  });
}
