// The agent compacted its context.

import type { CompactionItem } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { ContentBlocks } from "./ContentBlocks";
import { Icon } from "./Icon";

const WORDS: Record<string, string> = {
  in_progress: "The agent sums up the conversation to make room…",
  completed: "The agent summed up the conversation to make room.",
  failed: "The agent could not sum up the conversation.",
  cancelled: "The agent stopped summing up the conversation.",
};

export function CompactionCard({ item }: { item: CompactionItem }) {
  const words = lookup(WORDS, item.status) ?? `Summing up: ${item.status}`;
  if (item.summary.length === 0) {
    return (
      <div className={item.status === "failed" ? "note note-error" : "note"}>
        <p>{words}</p>
        {item.error && <p className="note-detail">{item.error}</p>}
      </div>
    );
  }
  return (
    <details className="thought">
      <summary>
        <Icon name="chevron" className="chevron" />
        {words}
      </summary>
      <div className="thought-text">
        <ContentBlocks blocks={item.summary} />
        {item.error && <p>{item.error}</p>}
      </div>
    </details>
  );
}
