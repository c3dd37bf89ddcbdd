// The keys of the user. A person creates, rotates and revokes them here.

import { type FormEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { type CreatedKey, type GatewayClient, type Key, known, type NewKey } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { isKept } from "../model/key";
import { since } from "../model/words";
import { strings } from "../strings";
import { State } from "./admin/parts";
import { CopyButton } from "./CopyButton";
import { Dialog } from "./Dialog";
import { onEscape } from "./escape";
import { Icon } from "./Icon";
import { ProblemNote } from "./ProblemNote";

interface Props {
  /** Null after the page was signed out. */
  client: GatewayClient | null;
  /** Continues with another key. `keep`: on this device. */
  onReplace(key: string, keep: boolean): void;
  onForget(): void;
  onClose(): void;
}

/** The part that is open in the list or in its place. A secret is only here, so the page has it until the dialog closes. */
type Part = { kind: "create" } | { kind: "secret"; of: CreatedKey } | { kind: Action; of: Key } | null;

type Action = "rotate" | "revoke";

const NAMES = { rotate: strings.keys.rotate, revoke: strings.keys.revoke };
const QUESTIONS = { rotate: strings.keys.askRotate, revoke: strings.keys.askRevoke };
const RESULTS = { rotate: strings.keys.pageKeeps, revoke: strings.keys.signsOut };

const DAY_MS = 86_400_000;
const DAYS = [7, 30, 90];

const at = (label: string, time: string | null) => time && `${label} ${since(time)}`;

/** Must be stable: React calls it once for each element. */
const focusButton = (element: HTMLElement | null) => element?.querySelector("button")?.focus();

const scopeName = (scope: string) => lookup(strings.key.scopes, scope) ?? scope;

export function KeysDialog({ client, onReplace, onForget, onClose }: Props) {
  const [keys, setKeys] = useState<Key[] | null>(null);
  const [loads, setLoads] = useState(0);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [part, setPart] = useState<Part>(null);
  /** Gets the focus after a question. */
  const focus = useRef<HTMLElement>(null);
  const add = useRef<HTMLButtonElement>(null);

  useEffect(() => {
    const stop = new AbortController();
    client?.keys({}, { signal: stop.signal }).then(
      (page) => setKeys(page.keys),
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
  }, [client, loads]);

  // The previous secret may sign the page out before the response with the new secret arrives.
  useEffect(() => {
    if (client === null && !busy) onClose();
  }, [client, busy, onClose]);

  // Another key replaces the page, and with it the button that opened the dialog.
  useEffect(() => () => void (document.activeElement === document.body && document.getElementById("main")?.focus()), []);

  function open(next: Part) {
    setError(null);
    setPart(next);
  }

  function back() {
    open(null);
    focus.current?.focus();
  }

  async function run(action: (client: GatewayClient) => Promise<Part>) {
    if (client === null || busy) return;
    setBusy(true);
    try {
      open(await action(client));
      setLoads((before) => before + 1);
    } catch (reason) {
      setError(reason);
    }
    setBusy(false);
  }

  const create = (key: NewKey) => run(async (client) => ({ kind: "secret", of: await client.createKey(key) }));

  const rotate = ({ keyId, isCurrent = false }: Key) =>
    run(async (client) => {
      const keep = isKept();
      const rotated = await client.rotateKey(keyId);
      if (isCurrent) onReplace(rotated.key, keep);
      return { kind: "secret", of: { ...rotated, isCurrent } };
    });

  const revoke = ({ keyId, isCurrent }: Key) =>
    run(async (client) => {
      await client.revokeKey(keyId);
      if (isCurrent) {
        onForget();
        onClose();
      }
      add.current?.focus();
      return null;
    });

  const own = keys?.find(({ isCurrent }) => isCurrent);
  const problem = error !== null && <ProblemNote error={error} />;
  return (
    <Dialog title={part?.kind === "secret" ? strings.keys.secretOf(visible(part.of.name)) : part?.kind === "create" ? strings.keys.add : strings.keys.title} onClose={onClose}>
      <div className="dialog-form" onKeyDown={(event) => part && onEscape(event, back)}>
        {part?.kind === "secret" ? (
          <Secret of={part.of} onDone={back} />
        ) : part?.kind === "create" ? (
          <Create own={own} problem={problem} onCreate={(key) => void create(key)} onCancel={back} />
        ) : (
          <>
            {part === null && problem}
            {keys === null && error === null && <p role="status">{strings.panel.loading}</p>}
            {keys && (
              <ul className="share-list" aria-label={strings.keys.title}>
                {/* For an admin, the list has the keys of all users. */}
                {keys
                  .filter(({ user, tenant }) => user === own?.user && tenant === own.tenant)
                  .map((key) => (
                    <Row
                      key={key.keyId}
                      of={key}
                      asks={part?.of.keyId === key.keyId ? part.kind : null}
                      problem={problem}
                      onAsk={(kind, button) => {
                        focus.current = button;
                        open({ kind, of: key });
                      }}
                      onConfirm={() => void (part?.kind === "rotate" ? rotate(key) : revoke(key))}
                      onCancel={back}
                    />
                  ))}
              </ul>
            )}
            <div className="dialog-actions">
              <button className="button primary" type="button" ref={add} autoFocus onClick={() => open({ kind: "create" })}>
                {strings.keys.add}
              </button>
              <button className="button" type="button" onClick={onClose}>
                {strings.common.done}
              </button>
            </div>
          </>
        )}
      </div>
    </Dialog>
  );
}

interface RowProps {
  of: Key;
  /** The action that the person has to confirm. */
  asks: Action | null;
  problem: ReactNode;
  /** The button gets the focus back. */
  onAsk(action: Action, button: HTMLElement): void;
  onConfirm(): void;
  onCancel(): void;
}

function Row({ of: key, asks, problem, onAsk, onConfirm, onCancel }: RowProps) {
  const name = visible(key.name);
  const button = (action: Action) => (
    <button className="button small" type="button" aria-expanded={asks === action} onClick={(event) => onAsk(action, event.currentTarget)}>
      {NAMES[action]}
      <span className="hidden"> {name}</span>
    </button>
  );
  return (
    <li>
      <span className="share-name">{name}</span>
      {key.isCurrent && <State tone="good" word={strings.keys.here} />}
      {known(key.kind) === "named" && button("rotate")}
      {/* The configuration has its own key. */}
      {known(key.kind) !== "admin" && button("revoke")}
      <p className="dock-note">
        {key.scopes.map(scopeName).join(", ")}
        <br />
        {[at(strings.admin.created, key.createdAt), at(strings.admin.lastUsed, key.lastUsedAt) ?? strings.keys.neverUsed, at(strings.admin.expires, key.expiresAt) ?? strings.keys.noExpiry]
          .filter((text) => text !== null)
          .join(" · ")}
      </p>
      {asks && (
        <div className="confirm" role="group" aria-label={QUESTIONS[asks]}>
          <span>
            {QUESTIONS[asks]} {key.isCurrent && RESULTS[asks]}
          </span>
          {problem}
          <button className="button small danger" type="button" onClick={onConfirm}>
            {NAMES[asks]}
          </button>
          <button className="button small" type="button" autoFocus onClick={onCancel}>
            {strings.common.cancel}
          </button>
        </div>
      )}
    </li>
  );
}

interface CreateProps {
  /** The key of the page. */
  own: Key | undefined;
  problem: ReactNode;
  onCreate(key: NewKey): void;
  onCancel(): void;
}

function Create({ own, problem, onCreate, onCancel }: CreateProps) {
  // The use of a link delays its end.
  const end = own?.expiresAt && known(own.kind) === "named" ? own.expiresAt : null;
  const later = (days: number) => new Date(Date.now() + days * DAY_MS).toISOString();

  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const days = Number(form.get("days"));
    const scopes = form.getAll("scope") as NonNullable<NewKey["scopes"]>;
    onCreate({ name: String(form.get("name")), scopes, ...(days > 0 ? { expiresAt: later(days) } : {}) });
  }

  return (
    <form className="dialog-form" onSubmit={submit}>
      <label className="share-field">
        {strings.admin.name}
        <input className="field-box" name="name" required autoFocus autoComplete="off" autoCapitalize="none" spellCheck={false} aria-describedby={problem ? "keys-problem" : undefined} />
      </label>
      {problem && <div id="keys-problem">{problem}</div>}
      <fieldset className="dialog-form">
        <legend className="share-field">{strings.keys.rights}</legend>
        {own?.scopes.map((scope) => (
          <label className="check" key={scope}>
            <input type="checkbox" name="scope" value={scope} defaultChecked={scope === "read"} />
            {scopeName(scope)}
          </label>
        ))}
      </fieldset>
      <label className="share-field">
        {strings.admin.expires}
        <select className="field-box" name="days" defaultValue={30}>
          <option value={0}>{end ? strings.keys.withThisKey : strings.keys.never}</option>
          {DAYS.filter((count) => !end || Date.parse(later(count)) < Date.parse(end)).map((count) => (
            <option key={count} value={count}>
              {strings.keys.afterDays(count)}
            </option>
          ))}
        </select>
      </label>
      <div className="dialog-actions">
        <button className="button primary" type="submit">
          {strings.keys.create}
        </button>
        <button className="button" type="button" onClick={onCancel}>
          {strings.common.cancel}
        </button>
      </div>
    </form>
  );
}

function Secret({ of: { key, isCurrent }, onDone }: { of: CreatedKey; onDone(): void }) {
  const line = `read -rs KEY && curl -s "${new URL("v1", document.baseURI).href}" -H "Authorization: Bearer $KEY"`;
  return (
    <>
      <p>
        <Icon name="warning" /> {strings.keys.once}
      </p>
      <div ref={focusButton}>
        <pre className="output">{key}</pre>
        <CopyButton text={key} label={strings.keys.copySecret} />
      </div>
      {isCurrent && <p>{strings.keys.pageKeeps}</p>}
      <p>{strings.keys.example}</p>
      <div>
        <pre className="output">{line}</pre>
        <CopyButton text={line} label={strings.keys.copyLine} />
      </div>
      <div className="dialog-actions">
        <button className="button primary" type="button" onClick={onDone}>
          {strings.common.done}
        </button>
      </div>
    </>
  );
}
