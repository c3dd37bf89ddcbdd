// The conversation. It stays at its end while the agent writes, unless the reader has scrolled away.

import { Fragment, memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { SessionLog, Turn } from "@acp-gateway/client";
import { Icon } from "./Icon";
import { Nearness, NearnessContext } from "./near";
import { since } from "../model/words";
import { strings } from "../strings";
import { AwaySummary } from "./AwaySummary";
import { turnId, TurnView } from "./TurnView";

interface Props {
  log: SessionLog;
  agent: string | null;
  busy: boolean;
  caughtUp: boolean;
  loading: boolean;
  /** Turns that ended later are new to this browser. Null: unknown. */
  seenUntil: string | null;
  /** The turn that the address names. */
  named: string | null;
  /** The number of messages that were sent here. Each of them shows the end of the conversation. */
  sends: number;
  /** Puts a prompt back into the message field. */
  onRewrite(text: string): void;
}

/** A long conversation is rendered from its end. A button shows earlier turns. */
const TURNS = 50;
/** Nearer to the end than this counts as being there. */
const NEAR_PX = 80;

export const Transcript = memo(function Transcript({ log, agent, busy, caughtUp, loading, seenUntil, named, sends, onRewrite }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const nearness = useMemo(() => new Nearness(() => scroller.current), []);
  useEffect(() => nearness.followPrints(), [nearness]);
  const stuck = useRef(true);
  const lastTop = useRef(0);
  const [away, setAway] = useState(false);
  // Fixed after the replay, so that no turn disappears while a person reads.
  const [from, setFrom] = useState<number | null>(null);
  const latest = Math.max(0, log.turns.length - TURNS);
  const earlier = Math.min(from ?? latest, latest);
  // The first new turn after the replay. Turns that follow are seen as they arrive.
  const [firstNew, setFirstNew] = useState<string | null>(null);
  const [settledAt, setSettledAt] = useState(0);
  if (caughtUp && from === null) {
    setFrom(latest);
    setFirstNew(firstNewTurn(log.turns, seenUntil));
    setSettledAt(log.turns.length);
  }

  // A link to a turn: it is shown, and the conversation does not move to its end.
  const index = named === null ? -1 : log.turns.findIndex((turn) => turn.promptId === named);
  if (caughtUp && index >= 0 && index < earlier) setFrom(index);
  useLayoutEffect(() => {
    if (!caughtUp || index < 0 || named === null) return;
    stuck.current = false;
    const element = document.getElementById(turnId(named));
    element?.scrollIntoView({ block: "start" });
    element?.focus({ preventScroll: true });
    setAway(true);
  }, [caughtUp, named, index < 0]);

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
          {!loading && log.turns.length === 0 && <Empty agent={agent} />}
          {earlier > 0 && (
            <button className="button small earlier" type="button" onClick={() => setFrom(Math.max(0, earlier - TURNS))}>
              {strings.transcript.earlierTurns(earlier)}
            </button>
          )}
          <NearnessContext value={nearness}>
            {log.turns.slice(earlier).map((turn) => (
              <Fragment key={turn.key}>
                {turn.key === firstNew && (
                  <>
                    <p className="new-mark">{strings.transcript.newSince(seenUntil === null ? strings.transcript.lastVisit : since(seenUntil))}</p>
                    <AwaySummary turns={log.turns.slice(log.turns.findIndex(({ key }) => key === firstNew), settledAt)} since={seenUntil} />
                  </>
                )}
                <TurnView turn={turn} isNamed={turn.promptId !== null && turn.promptId === named} terminals={log.terminals} onRewrite={onRewrite} />
              </Fragment>
            ))}
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

/** Null if no turn is new, or if all are. */
function firstNewTurn(turns: Turn[], seenUntil: string | null): string | null {
  if (seenUntil === null) return null;
  const index = turns.findIndex((turn) => (turn.endedAt ?? turn.createdAt) > seenUntil);
  return index > 0 ? turns[index]!.key : null;
}

function Empty({ agent }: { agent: string | null }) {
  return (
    <div className="transcript-empty">
      <p className="transcript-empty-title">{strings.transcript.ready(agent)}</p>
      <p>{strings.transcript.readyHint}</p>
    </div>
  );
}
