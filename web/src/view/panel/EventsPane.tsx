// The latest events of the session as the log has them, for people who build clients or look for the cause of a problem.

import { useEffect, useRef, useState } from "react";
import type { GatewayClient, LogEvent, SessionLog } from "@acp-gateway/client";
import { record, text, visible } from "@acp-gateway/client/read";
import { time } from "../../model/words";
import { strings } from "../../strings";
import { ProblemNote } from "../ProblemNote";
import { RawValue } from "../ActionView";

interface Props {
  client: GatewayClient;
  sessionId: string;
  log: SessionLog;
}

const MOST = 200;
/** How often new events are loaded. */
const EVERY_MS = 500;

export function EventsPane({ client, sessionId, log: { epoch, seq } }: Props) {
  const [events, setEvents] = useState<LogEvent[] | null>(null);
  const [filter, setFilter] = useState("");
  const [error, setError] = useState<unknown>(null);
  const latest = useRef(seq);
  useEffect(() => {
    latest.current = seq;
  }, [seq]);

  useEffect(() => {
    if (epoch === null) return;
    const stop = new AbortController();
    let loaded = -1;
    const load = () => {
      const end = latest.current;
      if (end === loaded) return;
      loaded = end;
      client.eventPage(sessionId, { after: `${epoch}-${Math.max(0, end - MOST)}`, limit: 1000 }, { signal: stop.signal }).then(
        // An earlier page can arrive later.
        (page) => end === loaded && setEvents(page.events),
        (reason: unknown) => !stop.signal.aborted && setError(reason),
      );
    };
    load();
    const timer = setInterval(load, EVERY_MS);
    return () => {
      clearInterval(timer);
      stop.abort();
    };
  }, [client, sessionId, epoch]);

  const shown = (events ?? []).filter((event) => nameOf(event).includes(filter.trim())).reverse();
  return (
    <>
      <input className="field-box" type="search" aria-label={strings.panel.filterEvents} placeholder={strings.panel.filterByType} value={filter} onChange={(event) => setFilter(event.target.value)} />
      {error !== null && <ProblemNote error={error} />}
      <div className="event-rows">
        {shown.map((event) => (
          <details key={event.seq} className="event-row">
            <summary>
              <span>{time(event.time)}</span>
              <span>{nameOf(event)}</span>
              <span>{event.id}</span>
            </summary>
            <RawValue label={strings.panel.event(event.id)} value={event} />
          </details>
        ))}
      </div>
      {events !== null && shown.length === 0 && <p className="panel-empty">{strings.panel.noEvent}</p>}
      {seq > MOST && <p className="panel-empty">{strings.panel.lastEvents(MOST, seq)}</p>}
    </>
  );
}

/** The kind of update says more than `session.update`. */
function nameOf(event: LogEvent): string {
  return visible(text(record(event["update"])?.["sessionUpdate"]) ?? event.type);
}
