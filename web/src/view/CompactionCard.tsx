// The agent compacted its context.

import type { CompactionItem } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { strings } from "../strings";
import { ContentBlocks } from "./ContentBlocks";
import { Icon } from "./Icon";

export function CompactionCard({ item }: { item: CompactionItem }) {
  const words = lookup(strings.transcript.compactions, item.status) ?? strings.transcript.otherCompaction(item.status);
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
