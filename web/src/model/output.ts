// The output of tool calls. The output of a program and the content of a file are plain text, not Markdown.

import type { ToolItem } from "@acp-gateway/client";
import { number, record, text } from "@acp-gateway/client/read";

const PLAIN: ReadonlySet<string> = new Set(["execute", "read", "search", "edit", "delete", "move"]);

/** Whether the text of a call of this kind is shown as it is. */
export function isPlain(toolKind: string): boolean {
  return PLAIN.has(toolKind);
}

const OUTPUT = ["output", "stdout", "aggregated_output", "formatted_output"];
const EXIT = ["exit_code", "exitCode"];

/** The output of a command that the agent reports only as the raw result of its tool. */
export function rawOutputOf({ toolKind, content, rawOutput }: ToolItem): { output: string; exitCode: number | null } | null {
  if (toolKind !== "execute" || content.length > 0) return null;
  const members = record(rawOutput);
  const output = text(rawOutput) ?? OUTPUT.map((name) => text(members?.[name])).find((one) => one !== null) ?? null;
  const exitCode = EXIT.map((name) => number(members?.[name])).find((one) => one !== null) ?? null;
  return output === null ? null : { output, exitCode };
}
