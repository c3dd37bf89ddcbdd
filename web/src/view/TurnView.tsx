// A prompt and its results.

import { memo, useContext } from "react";
import { withActivities } from "../model/activity";
import { blocksText, type Item, type RequestItem, type Terminal, type Turn } from "@acp-gateway/client";
import { lookup, records } from "@acp-gateway/client/read";
import { sentence } from "../model/explain";
import { parseRoute, turnHref } from "../model/route";
import { clock, duration, noteWords, stopWords } from "../model/words";
import { strings } from "../strings";
import { ActivityGroup } from "./ActivityGroup";
import { Elapsed } from "./Ago";
import { Boundary } from "./Boundary";
import { CompactionCard } from "./CompactionCard";
import { ContentBlocks } from "./ContentBlocks";
import { CopyButton } from "./CopyButton";
import { Icon } from "./Icon";
import { ItemChunk } from "./ItemChunk";
import { PlanCard } from "./PlanCard";
import { ProblemNote } from "./ProblemNote";
import { RequestLine } from "./RequestLine";
import { SubagentCard } from "./SubagentCard";
import { TerminalBlock } from "./TerminalBlock";
import { Thought } from "./Thought";
import { ToolCard } from "./ToolCard";
import { Where } from "./where";

interface Props {
  turn: Turn;
  /** A link names it. */
  isNamed: boolean;
  terminals: Record<string, Terminal>;
  /** Null if the key may not send messages. */
  onRewrite: ((text: string) => void) | null;
}

export const TurnView = memo(function TurnView({ turn, isNamed, terminals, onRewrite }: Props) {
  const [asked, declined] = [askedAbout(turn), declinedIn(turn)];
  const words = blocksText(turn.prompt);
  return (
    <article id={turn.promptId === null ? undefined : turnId(turn.promptId)} className={isNamed ? `turn turn-${turn.status} named` : `turn turn-${turn.status}`} tabIndex={-1} aria-label={turn.status === "between" ? strings.transcript.betweenTurns : strings.transcript.turn}>
      {turn.prompt.length > 0 && (
        <div className="message from-person">
          <span className="hidden">{strings.transcript.youWrote}</span>
          <ContentBlocks blocks={turn.prompt} plain />
        </div>
      )}
      {words !== "" && (
        <div className="prompt-actions" role="group" aria-label={strings.transcript.yourMessage}>
          <time className="prompt-time" dateTime={turn.createdAt}>
            {clock(turn.createdAt)}
          </time>
          <CopyButton text={words} icon="copy" />
          {onRewrite && (
            <button className="icon-button" type="button" title={strings.transcript.editAndSend} onClick={() => onRewrite(words)}>
              <Icon name="edit" />
              <span className="hidden">{strings.transcript.editAndSend}</span>
            </button>
          )}
          {turn.promptId !== null && <CopyButton text={() => linkTo(turn.promptId!)} label={strings.transcript.copyTurnLink} icon="link" />}
        </div>
      )}
      {turn.cut && turn.items.length > 0 && <p className="turn-cut">{strings.transcript.cut}</p>}
      {turn.items.length > 0 && <Speaker />}
      <Items items={turn.items} live={turn.status === "running"} settled={settled(turn)} asked={asked} declined={declined} terminals={terminals} />
      <TurnEnd turn={turn} onRewrite={onRewrite} />
    </article>
  );
});

/** The id of a turn's element, for links. */
export function turnId(promptId: string): string {
  return `turn-${promptId}`;
}

/** The address of a turn in the session that the page shows. */
function linkTo(promptId: string): string {
  const route = parseRoute(location.hash);
  return route.page === "session" ? new URL(turnHref(route.sessionId, promptId), location.href).href : location.href;
}

/** Who answers: the agent. */
function Speaker() {
  const agent = useContext(Where)?.agent ?? null;
  if (agent === null) return null;
  return (
    <p className="speaker">
      <span className="tile" aria-hidden="true">
        {[...agent][0]?.toUpperCase()}
      </span>
      <span className="speaker-name">{agent}</span>
    </p>
  );
}

/** Calls whose content an open request shows directly below, so that it does not appear twice. */
function askedAbout(turn: Turn): Set<string | null> {
  const shows = (request: RequestItem) => records(request.toolCall?.["content"]).length > 0;
  const open = turn.items.filter((item): item is RequestItem => item.kind === "request" && item.resolution === null);
  return new Set(open.filter(shows).map((request) => request.toolCallId));
}

/** Calls that a person rejected, or that nobody permitted. */
function declinedIn(turn: Turn): Set<string | null> {
  const isDeclined = ({ options, resolution }: RequestItem) =>
    resolution !== null && (resolution.optionId === null || options.some(({ optionId, kind }) => optionId === resolution.optionId && kind.startsWith("reject")));
  const requests = turn.items.filter((item): item is RequestItem => item.kind === "request" && item.method === "session/request_permission");
  return new Set(requests.filter(isDeclined).map((request) => request.toolCallId));
}

/** The text of the agent's messages in the turn. */
function answerText(turn: Turn): string {
  const texts = turn.items.map((item) => (item.kind === "message" ? blocksText(item.blocks) : ""));
  return texts.filter((text) => text !== "").join("\n\n");
}

function settled(turn: Turn): string {
  return turn.stopReason === "cancelled" ? "stopped" : "unfinished";
}

/** Terminals that a tool call shows need no place of their own. */
function shownTerminals(items: readonly Item[], shown = new Set<unknown>()): Set<unknown> {
  for (const item of items) {
    if (item.kind === "subagent") shownTerminals(item.items, shown);
    if (item.kind !== "tool") continue;
    for (const part of item.content) if (part["type"] === "terminal") shown.add(part["terminalId"]);
  }
  return shown;
}

interface ItemsProps {
  items: readonly Item[];
  live: boolean;
  settled: string;
  asked: Set<string | null>;
  declined: Set<string | null>;
  terminals: Record<string, Terminal>;
}

/** A turn with more parts is rendered in chunks. */
const SHORT = 25;
/** The parts that began within this number of events are one chunk. It stays the same when earlier parts are added. */
const CHUNK_EVENTS = 128;

function Items({ items, ...rest }: ItemsProps) {
  const shown = shownTerminals(items);
  return chunksOf(items).map(({ key, from, to }) => <PartsChunk key={key} items={items} from={from} to={to} shown={shown} {...rest} />);
}

/** The places of the first part of a chunk and of the first part after it. */
interface Chunk {
  key: number;
  from: number;
  to: number;
}

function chunksOf(items: readonly Item[]): Chunk[] {
  const chunks: Chunk[] = [];
  for (let from = 0; from < items.length; from = chunks.at(-1)!.to) {
    const key = chunkKey(items[from]!);
    let to = items.length > SHORT ? from + 1 : items.length;
    // The parts are in the order of their events.
    for (let end = items.length; to < end; ) {
      const middle = (to + end) >> 1;
      if (chunkKey(items[middle]!) > key) end = middle;
      else to = middle + 1;
    }
    chunks.push({ key, from, to });
  }
  return chunks;
}

/** A key is a letter and the number of the event that added the part. */
function chunkKey(item: Item): number {
  return Math.floor(Number(item.key.slice(1)) / CHUNK_EVENTS);
}

interface PartsProps extends ItemsProps {
  shown: Set<unknown>;
}

interface ChunkProps extends PartsProps, Pick<Chunk, "from" | "to"> {}

const PartsChunk = memo(function PartsChunk(props: ChunkProps) {
  return (
    <ItemChunk items={chunkOf(props)} isLast={isLastChunk(props)} isOnly={isOnlyChunk(props)}>
      <Parts {...props} items={chunkOf(props)} isEnd={isLastChunk(props)} />
    </ItemChunk>
  );
}, isSameChunk);

function chunkOf({ items, from, to }: ChunkProps): readonly Item[] {
  return items.slice(from, to);
}

function isLastChunk({ items, to }: ChunkProps): boolean {
  return to === items.length;
}

function isOnlyChunk({ items }: ChunkProps): boolean {
  return items.length <= SHORT;
}

/** The list of a running turn is another one after each event. Nearly all of its chunks are the same as before. */
function isSameChunk(before: ChunkProps, now: ChunkProps): boolean {
  if (isOnlyChunk(before) !== isOnlyChunk(now) || isLastChunk(before) !== isLastChunk(now)) return false;
  if (before.live !== now.live || before.settled !== now.settled || before.terminals !== now.terminals) return false;
  if (!isSameSet(before.asked, now.asked) || !isSameSet(before.declined, now.declined) || !isSameSet(before.shown, now.shown)) return false;
  if (before.to - before.from !== now.to - now.from) return false;
  for (let at = 0; at < now.to - now.from; at += 1) if (before.items[before.from + at] !== now.items[now.from + at]) return false;
  return true;
}

function isSameSet<T>(before: Set<T>, now: Set<T>): boolean {
  return before.size === now.size && [...now].every((member) => before.has(member));
}

function Parts({ items, shown, isEnd, ...rest }: PartsProps & { isEnd: boolean }) {
  const part = (item: Item) => (
    <Boundary key={item.key}>
      <ItemView item={item} {...rest} />
    </Boundary>
  );
  const visible = items.filter((item) => item.kind !== "terminal" || !shown.has(item.terminalId));
  return withActivities(visible, rest.live, isEnd).map((row) =>
    row.kind === "activity" ? (
      <ActivityGroup key={row.key} activity={row}>
        {row.calls.map(part)}
      </ActivityGroup>
    ) : (
      part(row)
    ),
  );
}

function ItemView({ item, live, settled, asked, declined, terminals }: Omit<ItemsProps, "items"> & { item: Item }) {
  switch (item.kind) {
    case "message":
      return (
        <div className="message from-agent">
          <ContentBlocks blocks={item.blocks} />
        </div>
      );
    case "user":
      return (
        <div className="message from-person">
          <ContentBlocks blocks={item.blocks} plain />
        </div>
      );
    case "thought":
      return <Thought item={item} />;
    case "tool":
      return <ToolCard item={item} live={live} settled={settled} folded={asked.has(item.toolCallId)} declined={declined.has(item.toolCallId)} terminals={terminals} />;
    case "plan":
      return <PlanCard item={item} live={live} />;
    case "request":
      return <RequestLine item={item} live={live} />;
    case "note":
      return (
        <div className={`note note-${item.severity}`}>
          <p dir="auto">{noteWords(item)}</p>
          {item.detail && <p className="note-detail" dir="auto">{item.cause === "agent_disconnected" ? sentence(item.detail) : item.detail}</p>}
        </div>
      );
    case "compaction":
      return <CompactionCard item={item} />;
    case "terminal": {
      const terminal = lookup(terminals, item.terminalId);
      return terminal ? <TerminalBlock terminal={terminal} /> : null;
    }
    case "relay":
      return (
        <div className="thought-text">
          <p className="raw-label">{item.to !== null ? strings.transcript.wasAsked : strings.transcript.answered}</p>
          <ContentBlocks blocks={item.blocks} />
        </div>
      );
    case "subagent":
      return (
        <SubagentCard item={item} live={live}>
          <Items items={item.items} live={live} settled={settled} asked={asked} declined={declined} terminals={terminals} />
        </SubagentCard>
      );
  }
}

function TurnEnd({ turn, onRewrite }: Pick<Props, "turn" | "onRewrite">) {
  if (turn.status === "running") {
    const waits = turn.items.some((item) => item.kind === "request" && item.resolution === null && !item.reserved);
    return (
      <p className={waits ? "turn-end working state-wait" : "turn-end working"}>
        {waits ? (
          <>
            <Icon name="waiting" /> {strings.transcript.waitingForYou}
          </>
        ) : (
          <>
            <span className="spinner" aria-hidden="true" /> {strings.transcript.working} <Elapsed since={turn.createdAt} />{" "}
            {onRewrite && (
              <>
                <kbd className="key-hint" aria-hidden="true">Esc</kbd> <span className="key-hint" aria-hidden="true">{strings.transcript.stops}</span>
              </>
            )}
          </>
        )}
      </p>
    );
  }
  if (turn.status === "failed" && turn.problem) {
    const words = blocksText(turn.prompt);
    return (
      <ProblemNote problem={turn.problem}>
        {onRewrite && words !== "" && (
          <button className="button small" type="button" onClick={() => onRewrite(words)}>
            {strings.transcript.writeAgain}
          </button>
        )}
      </ProblemNote>
    );
  }
  if (turn.status !== "completed") return null;
  const answer = answerText(turn);
  const took = turn.endedAt ? duration(turn.createdAt, turn.endedAt) : "";
  return (
    <div className="turn-foot">
      <p className={turn.stopReason === "end_turn" ? "turn-end" : "turn-end notable"}>
        {turn.stopReason === "end_turn" ? <Icon name="check" className="state-good" /> : <Icon name={turn.stopReason === "cancelled" ? "stop" : "warning"} />}
        {stopWords(turn.stopReason, turn.cancelCause)}
        {took && ` · ${took}`}
      </p>
      {answer !== "" && <CopyButton text={answer} label={strings.transcript.copyAnswer} icon="copy" />}
    </div>
  );
}
