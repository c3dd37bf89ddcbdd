// The agent's thoughts, collapsed by default.

import { memo } from "react";
import type { MessageItem } from "@acp-gateway/client";
import { duration } from "../model/words";
import { strings } from "../strings";
import { ContentBlocks } from "./ContentBlocks";
import { Icon } from "./Icon";

export const Thought = memo(function Thought({ item }: { item: MessageItem }) {
  return (
    <details className="thought">
      <summary>
        <Icon name="chevron" className="chevron" />
        {strings.transcript.thoughtFor(duration(item.startedAt, item.endedAt))}
      </summary>
      <div className="thought-text">
        <ContentBlocks blocks={item.blocks} />
      </div>
    </details>
  );
});
