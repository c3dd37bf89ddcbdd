// The audit log, the newest events first. The API pages forward, so the page reads windows of event numbers backward.

import { useEffect, useState } from "react";
import { type Answer, type GatewayClient, parseCursor } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { sessionHref } from "../../model/route";
import { strings } from "../../strings";
import { ProblemNote } from "../ProblemNote";
import { At, Table, valueText } from "./parts";

/** The number of events of a window. With a filter, few of them are shown. */
const WINDOW = 200;
const FILTERED_WINDOW = 1000;

type AuditEvent = Extract<Answer<"AuditPage">["events"][number], { actor: unknown }>;

interface Found {
  epoch: string;
  /** The newest first. */
  events: AuditEvent[];
  /** The number of the last event of the log, and the number before the oldest event that was read. */
  end: number;
  start: number;
}

export function Audit({ client }: { client: GatewayClient }) {
  const [types, setTypes] = useState("");
  const [found, setFound] = useState<Found | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [refreshes, setRefreshes] = useState(0);

  useEffect(() => {
    const stop = new AbortController();
    setFound(null);
    newest(client, types, stop.signal).then(
      (newest) => {
        setFound(newest);
        setError(null);
      },
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
  }, [client, types, refreshes]);

  const showOlder = (before: Found) => older(client, types, before).then((more) => setFound((now) => (now === before ? more : now)), setError);

  return (
    <>
      <div className="admin-filters">
        <label>
          {strings.admin.filterEvents}{" "}
          <select className="field-box" value={types} onChange={(event) => setTypes(event.target.value)}>
            {Object.entries(strings.admin.eventGroups).map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <button className="button" type="button" onClick={() => setRefreshes(refreshes + 1)}>
          {strings.admin.refresh}
        </button>
      </div>
      {error !== null && <ProblemNote error={error} />}
      {found === null && error === null && <p role="status">{strings.panel.loading}</p>}
      {found !== null && (
        <>
          <Table
            name={strings.admin.sections.audit}
            rows={found.events}
            keyOf={({ seq }) => seq}
            empty={strings.admin.noEvents}
            columns={{
              [strings.admin.time]: ({ time }) => <At time={time} />,
              [strings.admin.event]: ({ type }) => <code className="admin-short">{type}</code>,
              [strings.admin.actor]: ({ actor }) => actorWords(actor),
              [strings.admin.details]: (event) => <Details event={event} />,
            }}
          />
          <p className="admin-note" role="status">
            {strings.admin.searched(found.start + 1, found.end)}
          </p>
          {found.start > 0 && (
            <p>
              <button className="button" type="button" onClick={() => void showOlder(found)}>
                {strings.admin.olderEvents}
              </button>
            </p>
          )}
        </>
      )}
    </>
  );
}

function actorWords({ kind, name, address }: Answer<"AuditActor">): string {
  const words = [lookup(strings.admin.actors, kind) ?? kind, name].filter((part) => part !== undefined).join(" ");
  return visible(address === undefined ? words : `${words}, ${address}`);
}

/** The members of each event. `previous` is a hash for `audit verify`. */
const COMMON = ["id", "seq", "type", "time", "actor", "previous"];

function Details({ event }: { event: AuditEvent }) {
  const others = Object.entries(event).filter(([name, value]) => !COMMON.includes(name) && value !== null);
  return others.map(([name, value]) => (
    <span key={name} className="admin-field">
      {name} {name === "sessionId" ? <a href={sessionHref(String(value))}>{String(value)}</a> : <code>{visible(valueText(value))}</code>}
    </span>
  ));
}

async function newest(client: GatewayClient, types: string, signal: AbortSignal): Promise<Found> {
  const { lastEventId } = await client.audit({ after: "tail" }, { signal });
  const end = parseCursor(lastEventId);
  if (end === null) throw new Error(lastEventId);
  return older(client, types, { epoch: end.epoch, events: [], end: end.seq, start: end.seq }, signal);
}

/** Adds the window before `found.start`. */
async function older(client: GatewayClient, types: string, found: Found, signal?: AbortSignal): Promise<Found> {
  const size = types === "" ? WINDOW : FILTERED_WINDOW;
  const start = Math.max(0, found.start - size);
  const { events } = await client.audit({ after: `${found.epoch}-${start}`, limit: size, ...(types === "" ? {} : { types: types.split(",") }) }, { signal });
  const audited = events.filter((event): event is AuditEvent => "actor" in event && event.seq <= found.start);
  // The log begins after `start` if its first events were removed.
  const isFirst = events.some(({ type }) => type === "reset");
  return { ...found, events: [...found.events, ...audited.reverse()], start: isFirst ? 0 : start };
}
