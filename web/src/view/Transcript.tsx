// The conversation. It stays at its end while the agent writes, unless the reader has scrolled away.

import { Fragment, memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { FeedState, SessionLog, Turn } from "@acp-gateway/client";
import { Icon } from "./Icon";
import { KeepPlace } from "./KeepPlace";
import { Nearness, NearnessContext } from "./near";
import { since } from "../model/words";
import { strings } from "../strings";
import { AwaySummary } from "./AwaySummary";
import { Earlier } from "./Earlier";
import { turnId, TurnView } from "./TurnView";

interface Props {
  log: SessionLog;
  agent: string | null;
  busy: boolean;
  caughtUp: boolean;
  loading: boolean;
  /** The session exists, and its log is read. */
  isReady: boolean;
  /** The state of the part before the log. */
  earlier: FeedState["earlier"];
  /** All turns of the log are shown, also those far above. */
  whole: boolean;
  /** Turns that ended later are new to this browser. Null: unknown. */
  seenUntil: string | null;
  /** The turn that the address names. */
  named: string | null;
  /** The number of messages that were sent here. Each of them shows the end of the conversation. */
  sends: number;
  /** Puts a prompt back into the message field. Null if the key may not send messages. */
  onRewrite: ((text: string) => void) | null;
  /** Reads the part before the log. */
  onEarlier(): void;
}

/** A long conversation is rendered from its end. */
const TURNS = 50;
/** Nearer to the end than this counts as being there. */
const NEAR_PX = 80;

export const Transcript = memo(function Transcript({ log, agent, busy, caughtUp, loading, isReady, earlier, whole, seenUntil, named, sends, onRewrite, onEarlier }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const nearness = useMemo(() => new Nearness(() => scroller.current), []);
  useEffect(() => nearness.followPrints(), [nearness]);
  const stuck = useRef(true);
  const lastTop = useRef(0);
  const [away, setAway] = useState(false);
  // The key of the first turn that is shown. Fixed after the replay, so that no turn disappears while a person reads.
  const [from, setFrom] = useState<string | null>(null);
  const first = firstShown(log.turns, from, whole);
  if (caughtUp && from === null && log.turns.length > 0) setFrom(log.turns[first]!.key);
  const showEarlier = () => (first > 0 ? setFrom(log.turns[Math.max(0, first - TURNS)]!.key) : onEarlier());

  // The turns that are new after the replay. Turns that follow are seen as they arrive.
  const [fresh, setFresh] = useState<Fresh | null>(null);
  const covered = log.start === 0 || seenUntil === null || log.turns.some((turn) => lastChange(turn) <= seenUntil);
  if (caughtUp && fresh === null && covered) setFresh(freshTurns(log.turns, seenUntil));
  const lacksSeen = caughtUp && !covered && earlier === "idle";

  // A link to a turn: it is shown, and the conversation does not move to its end.
  const index = named === null ? -1 : log.turns.findIndex((turn) => turn.promptId === named);
  if (caughtUp && index >= 0 && index < first) setFrom(log.turns[index]!.key);
  const lacksNamed = caughtUp && named !== null && index < 0 && log.start > 0 && earlier === "idle";
  useEffect(() => {
    if (lacksSeen || lacksNamed) onEarlier();
  }, [lacksSeen, lacksNamed, onEarlier]);
  useLayoutEffect(() => {
    if (!caughtUp || index < 0 || named === null) return;
    stuck.current = false;
    const element = document.getElementById(turnId(named));
    element?.scrollIntoView({ block: "start" });
    element?.focus({ preventScroll: true });
    setAway(true);
  }, [caughtUp, named, index < 0]);

  const beginning = `${log.start} ${log.turns[first]?.key ?? ""}`;
  const reads = useCallback(() => !stuck.current, []);

  const toEnd = useCallback(() => {
    const box = scroller.current;
    if (box) box.scrollTop = box.scrollHeight;
  }, []);

  useLayoutEffect(() => {
    if (sends === 0) return;
    stuck.current = true;
    toEnd();
  }, [sends, toEnd]);

  useLayoutEffect(() => {
    if (stuck.current) toEnd();
  }, [log, toEnd]);

  // Cards that open, images that load and a keyboard that slides in change the height without an event.
  useEffect(() => {
    const watch = new ResizeObserver(() => {
      if (stuck.current) toEnd();
      // The dock below has the same edges as the conversation, also beside a scroll bar that takes space.
      const box = scroller.current;
      const gutter = box ? (box.offsetWidth - box.clientWidth) / 2 : 0;
      box?.closest<HTMLElement>(".session")?.style.setProperty("--gutter", `${gutter}px`);
    });
    if (content.current) watch.observe(content.current);
    if (scroller.current) watch.observe(scroller.current);
    return () => watch.disconnect();
  }, [toEnd]);

  function scrolled() {
    const box = scroller.current;
    if (!box) return;
    const { scrollTop } = box;
    // Content that grows between a scroll and its event is no reason to leave the end: only a reader who scrolls up leaves it.
    if (box.scrollHeight - scrollTop - box.clientHeight < NEAR_PX) stuck.current = true;
    else if (scrollTop < lastTop.current) stuck.current = false;
    lastTop.current = scrollTop;
    setAway(!stuck.current);
  }

  return (
    <div className="transcript-place">
      <div className="transcript" ref={scroller} onScroll={scrolled} tabIndex={0} role="region" aria-label={strings.transcript.name}>
        <div className="transcript-content" ref={content} role="log" aria-live="off" aria-busy={busy} aria-label={strings.transcript.messages}>
          {loading && <p className="transcript-empty">{strings.transcript.loading}</p>}
          {isReady && log.turns.length === 0 && <Empty agent={agent} asks={onRewrite !== null} />}
          {log.start > 0 && <p className="not-printed">{strings.transcript.notPrinted}</p>}
          {caughtUp && (first > 0 || log.start > 0) && <Earlier state={earlier} beginning={beginning} onShow={showEarlier} />}
          <NearnessContext value={nearness}>
            <KeepPlace scroller={scroller} beginning={beginning} reads={reads}>
              {log.turns.slice(first).filter(hasBegun).map((turn) => (
                <Fragment key={turn.key}>
                  {turn.key === fresh?.first && (
                    <>
                      <p className="new-mark">{strings.transcript.newSince(seenUntil === null ? strings.transcript.lastVisit : since(seenUntil))}</p>
                      <AwaySummary turns={turnsBetween(log.turns, fresh.first, fresh.last)} since={seenUntil} />
                    </>
                  )}
                  <TurnView turn={turn} isNamed={turn.promptId !== null && turn.promptId === named} terminals={log.terminals} onRewrite={onRewrite} />
                </Fragment>
              ))}
            </KeepPlace>
          </NearnessContext>
        </div>
      </div>
      {away && (
        <button
          className="button small jump"
          type="button"
          onClick={() => {
            stuck.current = true;
            toEnd();
          }}
        >
          <Icon name="down" /> {strings.transcript.jump}
        </button>
      )}
    </div>
  );
});

/** `Queue` shows queued turns. A message that was removed from the queue is not a part of the conversation. */
function hasBegun({ status }: Turn): boolean {
  return status !== "queued" && status !== "removed";
}

/** The index of the first turn that is shown. */
function firstShown(turns: Turn[], from: string | null, whole: boolean): number {
  if (whole) return 0;
  const latest = Math.max(0, turns.length - TURNS);
  const index = from === null ? -1 : turns.findIndex(({ key }) => key === from);
  return index < 0 ? latest : Math.min(index, latest);
}

/** The keys of the first and of the last turn since the last visit. */
interface Fresh {
  first: string | null;
  last: string | null;
}

/** `first` is null if no turn is new, or if all are. */
function freshTurns(turns: Turn[], seenUntil: string | null): Fresh {
  const index = seenUntil === null ? -1 : turns.findIndex((turn) => lastChange(turn) > seenUntil);
  return { first: index > 0 ? turns[index]!.key : null, last: turns.at(-1)?.key ?? null };
}

function turnsBetween(turns: Turn[], first: string | null, last: string | null): Turn[] {
  const at = (key: string | null) => turns.findIndex((turn) => turn.key === key);
  return turns.slice(at(first), at(last) + 1);
}

function lastChange(turn: Turn): string {
  return turn.endedAt ?? turn.createdAt;
}

function Empty({ agent, asks }: { agent: string | null; asks: boolean }) {
  return (
    <div className="transcript-empty">
      <p className="transcript-empty-title">{strings.transcript.ready(agent)}</p>
      {asks && <p>{strings.transcript.readyHint}</p>}
    </div>
  );
}
