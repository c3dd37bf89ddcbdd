// The parts of each section of the administration page: values that are loaded at intervals, figures and tables.

import { type ReactNode, useCallback, useState } from "react";
import type { Answer, CallOptions, GatewayClient } from "@acp-gateway/client";
import { record } from "@acp-gateway/client/read";
import { useReload } from "@acp-gateway/react";
import { size } from "../../model/attachments";
import { length, since, time as clock } from "../../model/words";
import { strings } from "../../strings";
import { ProblemNote } from "../ProblemNote";

const EVERY_MS = 5_000;

export type Diagnostics = Answer<"Diagnostics">;
export const diagnostics = (client: GatewayClient, call: CallOptions) => client.diagnostics(call);

interface LiveProps<T> {
  client: GatewayClient;
  /** Must be stable. */
  load(client: GatewayClient, call: CallOptions): Promise<T>;
  children(value: T): ReactNode;
}

/** A value that is loaded every 5 s while the page is visible. After an error, the latest value stays. */
export function Live<T>({ client, load, children }: LiveProps<T>) {
  const [latest, setLatest] = useState<{ value: T; at: string } | null>(null);
  const request = useCallback((signal: AbortSignal) => load(client, { signal }), [client, load]);
  const store = useCallback((value: T) => setLatest({ value, at: new Date().toISOString() }), []);
  const { error } = useReload(EVERY_MS, request, store);
  return (
    <>
      {error !== null && <ProblemNote error={error} />}
      {latest === null && error === null && <p role="status">{strings.panel.loading}</p>}
      {latest !== null && (
        <>
          <p className="admin-note">
            {strings.admin.updated} <time dateTime={latest.at}>{clock(latest.at)}</time>
          </p>
          {children(latest.value)}
        </>
      )}
    </>
  );
}

export function Figures({ values }: { values: Record<string, ReactNode> }) {
  return (
    <dl className="admin-figures">
      {Object.entries(values).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value ?? strings.admin.none}</dd>
        </div>
      ))}
    </dl>
  );
}

interface TableProps<T> {
  name: string;
  rows: readonly T[];
  keyOf(row: T, index: number): string | number;
  /** The cells, by the heads of their columns. */
  columns: Record<string, (row: T) => ReactNode>;
  /** Shown instead of a table without rows. */
  empty: string;
}

/** On a narrow screen, each row is a list of its cells. The roles keep it a table for screen readers there. */
export function Table<T>({ name, rows, keyOf, columns, empty }: TableProps<T>) {
  if (rows.length === 0) return <p className="admin-note">{empty}</p>;
  const heads = Object.entries(columns);
  const isEmpty = (cell: ReactNode) => cell === null || cell === undefined || cell === false || cell === "";
  return (
    <table className="admin-table" role="table" aria-label={name}>
      <thead>
        <tr role="row">
          {heads.map(([head]) => (
            <th key={head} role="columnheader" scope="col">
              {head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row, index) => (
          <tr key={keyOf(row, index)} role="row">
            {heads.map(([head, cellOf]) => {
              const cell = cellOf(row);
              return (
                <td key={head} role="cell" data-head={head}>
                  <div>{isEmpty(cell) ? strings.admin.none : cell}</div>
                </td>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function State({ tone, word }: { tone: "good" | "wait" | "bad"; word: string }) {
  return (
    <span className={`agent-state agent-${tone}`}>
      <span className="agent-dot" aria-hidden="true" />
      {word}
    </span>
  );
}

export function Bytes({ count }: { count: number | null }) {
  return count === null ? strings.admin.none : <span title={strings.common.bytes(count)}>{size(count)}</span>;
}

export function Seconds({ count }: { count: number | null }) {
  return count === null ? strings.admin.none : <span title={strings.time.seconds(count)}>{length(count)}</span>;
}

/** A value of JSON as text for people. */
export function valueText(value: unknown): string {
  if (Array.isArray(value)) return value.map(valueText).join(", ");
  const members = record(value);
  return members === null ? String(value) : pairs(members);
}

export function pairs(of: Record<string, unknown>): string {
  return Object.entries(of).map(([name, value]) => `${name}: ${valueText(value)}`).join(", ");
}

/** A point in time that may be in the future. */
export function At({ time }: { time: string }) {
  return (
    <time dateTime={time} title={time}>
      {since(time)}
    </time>
  );
}
