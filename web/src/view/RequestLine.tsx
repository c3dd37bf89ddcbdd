// A request in the transcript, with its answer and the author of the answer. An open one is in the dock below, unless another editor has to
// answer it.

import { memo } from "react";
import type { RequestItem, Resolution } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { strings } from "../strings";
import { Icon } from "./Icon";

export const RequestLine = memo(function RequestLine({ item, live }: { item: RequestItem; live: boolean }) {
  const waits = item.resolution === null && live;
  if (waits && !item.reserved) return null;
  return (
    <p className={waits ? "request-line waits" : "request-line"}>
      <Icon name={waits ? "waiting" : "mode"} />
      <span className="request-line-title" dir="auto">{item.title.replace(/[.:]$/, "") || strings.requests.asked}</span>
      <span>
        {item.resolution ? resolutionWords(item, item.resolution) : waits ? strings.requests.waitsForEditor : strings.requests.notAnswered}
        {item.done && strings.requests.andDone}
      </span>
    </p>
  );
});

export function resolutionWords(item: RequestItem, resolution: Resolution): string {
  const option = item.options.find((candidate) => candidate.optionId === resolution.optionId);
  const choice = option ? strings.requests.quoted(option.name) : null;
  const by = resolution.by ? strings.requests.by(resolution.by) : "";
  switch (resolution.how) {
    case "answered":
      if (resolution.refused) return strings.requests.refused(by);
      if (choice) return strings.requests.chosen(choice, by);
      return `${lookup(strings.requests.actions, resolution.action) ?? strings.requests.answered}${by}`;
    case "policy":
      return choice ? strings.requests.chosenByPolicy(choice) : strings.requests.answeredByPolicy;
    case "cancelled":
      return strings.requests.cancelled;
    case "withdrawn":
      return strings.requests.withdrawn;
    case "disconnected":
      return strings.requests.disconnected;
    case "expired":
      return strings.requests.expired;
    default:
      return resolution.how;
  }
}
