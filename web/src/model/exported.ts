// A conversation as a Markdown file.

import { blocksText, type Item, type SessionLog, type Turn } from "@acp-gateway/client";
import { strings } from "../strings";
import { stopWords } from "./words";

const MAX_NAME = 60;

export function toMarkdown(log: SessionLog, title: string): string {
  const about = [log.agent ? strings.session.exportAgent(log.agent) : "", log.cwd ? strings.session.exportFolder(log.cwd) : ""];
  const parts = [`# ${title}`, about.filter((line) => line !== "").join("  \n"), ...log.turns.map(turnMarkdown)];
  return `${parts.filter((part) => part !== "").join("\n\n")}\n`;
}

/** A file name of the letters and digits of the title, without its extension. */
export function fileName(title: string): string {
  const name = title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, MAX_NAME).replace(/^-+|-+$/g, "");
  return name || strings.session.exportName;
}

function turnMarkdown(turn: Turn): string {
  const prompt = blocksText(turn.prompt);
  const items = turn.items.map(itemMarkdown);
  const end = turn.problem ? `_${turn.problem.title}_` : turn.stopReason === null ? "" : `_${stopWords(turn.stopReason, turn.cancelCause)}_`;
  const parts = [prompt === "" ? "" : `## ${strings.session.exportYou}\n\n${prompt}`, items.length > 0 ? `## ${strings.session.exportAgentHeading}` : "", ...items, end];
  return parts.filter((part) => part !== "").join("\n\n");
}

function itemMarkdown(item: Item): string {
  switch (item.kind) {
    case "message":
      return blocksText(item.blocks);
    case "user":
      return `## ${strings.session.exportYou}\n\n${blocksText(item.blocks)}`;
    case "tool":
      return `- ${item.title} (${item.status})`;
    case "subagent":
      return item.items.map(itemMarkdown).filter((part) => part !== "").join("\n\n");
    default:
      return "";
  }
}
