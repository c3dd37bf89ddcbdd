// The words of a part, for the browser's search in parts that are not mounted.

import { blocksText, type Item, type ToolItem } from "@acp-gateway/client";
import { records, text } from "@acp-gateway/client/read";
import { noteWords } from "./words";

/** Characters of a part that the search finds. A longer text is shown in parts too. */
const MAX_LENGTH = 20_000;

export function itemText(item: Item): string {
  return textOf(item).slice(0, MAX_LENGTH);
}

function textOf(item: Item): string {
  switch (item.kind) {
    case "message":
    case "thought":
    case "user":
    case "relay":
      return blocksText(item.blocks);
    case "tool":
      return [item.title, ...toolTexts(item)].join("\n");
    case "plan":
      return [item.markdown ?? "", ...item.entries.map((entry) => entry.content)].join("\n");
    case "request":
      return item.title;
    case "note":
      return [noteWords(item), item.detail ?? ""].join("\n");
    case "compaction":
      return blocksText(item.summary);
    case "subagent":
      return [item.title ?? "", ...item.items.map(itemText)].join("\n");
    case "terminal":
      return "";
  }
}

function toolTexts(item: ToolItem): string[] {
  return records(item.content).flatMap((part) => {
    const block = part["content"];
    const words = typeof block === "object" && block !== null ? text((block as { text?: unknown }).text) : null;
    return [words, text(part["path"]), text(part["newText"])].filter((one) => one !== null);
  });
}
