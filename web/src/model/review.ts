// Comments of a person on changed lines, which become one message for the agent.

import { strings } from "../strings";
import { mention } from "./suggest";

export interface LineComment {
  key: string;
  path: string;
  /** The number of the line in the new text, or in the old one for a removed line. */
  line: number;
  removed: boolean;
  /** The line that the comment is about. */
  code: string;
  text: string;
}

/** The message: each file, line and comment, in the order of the files. */
export function reviewMessage(comments: readonly LineComment[]): string {
  const sorted = [...comments].sort((a, b) => (a.path === b.path ? a.line - b.line : a.path < b.path ? -1 : 1));
  const parts = sorted.map(({ path, line, removed, code, text }) => {
    const place = removed ? strings.panel.removedLine(line) : strings.panel.line(line);
    return `${strings.panel.commentAt(mention(path), place)}\n\n> ${code.trim() || strings.panel.emptyLine}\n\n${text.trim()}`;
  });
  return `${strings.panel.commentsHead(comments.length)}\n\n${parts.join("\n\n")}`;
}
