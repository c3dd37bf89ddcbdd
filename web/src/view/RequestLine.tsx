// A request in the transcript: open, or answered with author and answer. The dock below contains the form.

import { memo } from "react";
import type { RequestItem, Resolution } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { Icon } from "./Icon";

const ACTIONS: Record<string, string> = { accept: "accepted", decline: "declined", cancel: "dismissed" };

export const RequestLine = memo(function RequestLine({ item, live }: { item: RequestItem; live: boolean }) {
  const waits = item.resolution === null && live;
  return (
    <p className={waits ? "request-line waits" : "request-line"}>
      <Icon name={waits ? "waiting" : "mode"} />
      <span className="request-line-title">{item.title.replace(/[.:]$/, "") || "The agent asked a question"}</span>
      <span>
        {item.resolution ? resolutionWords(item, item.resolution) : live ? (item.reserved ? "waits for the editor" : "waits for your answer") : "was not answered"}
        {item.done && ", and done"}
      </span>
    </p>
  );
});

export function resolutionWords(item: RequestItem, resolution: Resolution): string {
  const option = item.options.find((candidate) => candidate.optionId === resolution.optionId);
  const choice = option ? `“${option.name}”` : null;
  const by = resolution.by ? ` by ${resolution.by}` : "";
  switch (resolution.how) {
    case "answered":
      if (resolution.refused) return `refused${by}`;
      if (choice) return `${choice} chosen${by}`;
      return `${lookup(ACTIONS, resolution.action) ?? "answered"}${by}`;
    case "policy":
      return choice ? `${choice} chosen by the gateway's policy` : "answered by the gateway's policy";
    case "cancelled":
      return "cancelled with the turn";
    case "withdrawn":
      return "withdrawn by the agent";
    case "disconnected":
      return "ended, because the editor has disconnected";
    case "expired":
      return "ran out unanswered";
    default:
      return resolution.how;
  }
}
