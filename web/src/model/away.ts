// Sums up the events of a session since the last visit, in at most five lines.

import type { Item, RequestItem, ToolItem, Turn } from "@acp-gateway/client";
import { line } from "@acp-gateway/client/read";
import { strings } from "../strings";

export interface AwayLine {
  icon: string;
  tone: "good" | "bad" | "wait" | "none";
  words: string;
  /** The time of the event. */
  time: string | null;
}

const MOST = 5;

/** At most five lines. What needs an answer is the last one. */
export function awayLines(turns: readonly Turn[]): AwayLine[] {
  const items = turns.flatMap((turn) => turn.items.flatMap((item): Item[] => (item.kind === "subagent" ? item.items : [item])));
  const lines: AwayLine[] = [];
  const finished = turns.filter((turn) => turn.status === "completed");
  if (finished.length > 0) lines.push({ icon: "check", tone: "good", words: strings.transcript.turnsFinished(finished.length), time: finished.at(-1)!.endedAt });
  const failed = turns.filter((turn) => turn.status === "failed");
  if (failed.length > 0) lines.push({ icon: "failed", tone: "bad", words: strings.transcript.turnsFailed(failed.length), time: failed.at(-1)!.endedAt });
  const files = changedFiles(items);
  if (files > 0) lines.push({ icon: "changes", tone: "none", words: strings.transcript.filesChanged(files), time: null });
  const requests = items.filter((item): item is RequestItem => item.kind === "request");
  const answered = requests.filter((request) => request.resolution !== null);
  const open = requests.filter((request) => request.resolution === null);
  for (const request of answered.slice(0, MOST - lines.length - Math.min(open.length, 1))) {
    const option = request.options.find(({ optionId }) => optionId === request.resolution?.optionId);
    const by = request.resolution?.by ?? strings.transcript.theGateway;
    lines.push({ icon: "agent", tone: "none", words: option ? strings.transcript.answeredBy(by, option.name, request.title) : `${request.title}: ${request.resolution?.how ?? ""}`, time: null });
  }
  if (open.length > 0) lines.push({ icon: "waiting", tone: "wait", words: strings.transcript.needsAnswer(open[0]!.title), time: null });
  return lines.slice(-MOST);
}

function changedFiles(items: readonly Item[]): number {
  const edits = items.filter((item): item is ToolItem => item.kind === "tool" && item.status === "completed");
  return new Set(edits.flatMap((item) => item.content.filter((part) => part["type"] === "diff").map((part) => line(part["path"])))).size;
}
