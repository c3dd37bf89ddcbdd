// The users with access to a session. An owner gives, changes and removes access here.

import { type FormEvent, useEffect, useId, useRef, useState } from "react";
import { type Access, ApiProblem, type GatewayClient, type Grant, type SessionGrants } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { LEVELS } from "../model/rights";
import { granteeName, granteeOf, grantProblem, KINDS, type Kind, nameProblem, TENANT } from "../model/sharing";
import { useAbout } from "../model/useAbout";
import { strings } from "../strings";
import { Dialog } from "./Dialog";
import { Icon } from "./Icon";
import { ProblemNote } from "./ProblemNote";

interface Props {
  client: GatewayClient;
  sessionId: string;
  /** Whether the user may change the access of others. */
  mayShare: boolean;
  onClose(): void;
}

/** The place of a problem: a grantee, or the form. */
const FORM = "";

const levelName = (level: string) => lookup(strings.sharing.levels, level) ?? level;

export function ShareDialog({ client, sessionId, mayShare, onClose }: Props) {
  const about = useAbout(client);
  const [list, setList] = useState<SessionGrants | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [loads, setLoads] = useState(0);
  const [problem, setProblem] = useState<{ at: string; text: string } | null>(null);
  const [news, setNews] = useState("");
  const [name, setName] = useState("");
  const [kind, setKind] = useState<Kind>("user");
  const [level, setLevel] = useState<Access>("read");
  const field = useRef<HTMLInputElement>(null);
  /** Changes in their order: a person selects with the arrow keys faster than the gateway answers. */
  const last = useRef<Promise<unknown>>(Promise.resolve());
  const id = useId();
  const tenant = about?.principal.tenant ?? "";
  const nameOf = (grantee: string) => granteeName(grantee, tenant);
  const marked = (user: string) => (user === about?.principal.id ? strings.sharing.you(user) : user);
  const grants = list?.grants ?? [];
  const all = grants.find(({ grantee }) => grantee === TENANT)?.access ?? null;

  useEffect(() => {
    const stop = new AbortController();
    client.grants(sessionId, { signal: stop.signal }).then(setList, (reason: unknown) => !stop.signal.aborted && setError(reason));
    return () => stop.abort();
  }, [client, sessionId, loads]);

  /** Shows a grant, or none of this grantee. A changed one keeps its place. */
  const show = (grantee: string, grant: Grant | null) =>
    setList((before) => {
      if (!before) return before;
      const isKnown = before.grants.some((each) => each.grantee === grantee);
      const changed = before.grants.flatMap((each) => (each.grantee !== grantee ? each : (grant ?? [])));
      return { ...before, grants: grant && !isKnown ? [...changed, grant] : changed };
    });

  function change(grantee: string, access: Access | null, at = grantee): Promise<boolean> {
    const done = last.current.then(async () => {
      try {
        if (access) show(grantee, await client.grant(sessionId, grantee, access));
        else {
          await client.revokeGrant(sessionId, grantee).catch((reason: unknown) => {
            // Somebody else has removed it.
            if (!(reason instanceof ApiProblem && reason.status === 404)) throw reason;
          });
          show(grantee, null);
        }
        setProblem(null);
        setNews(strings.sharing.changed(nameOf(grantee), access ? levelName(access) : strings.sharing.noAccess));
        return true;
      } catch (reason) {
        setProblem({ at, text: grantProblem(reason, grantee) });
        setLoads((before) => before + 1);
        return false;
      }
    });
    last.current = done;
    return done;
  }

  function select(grantee: string, access: Access | null) {
    const grant = grants.find((each) => each.grantee === grantee);
    if (grant && access) show(grantee, { ...grant, access });
    void change(grantee, access);
  }

  async function add(event: FormEvent) {
    event.preventDefault();
    const given = name.trim();
    const wrong = nameProblem(kind, given, list?.owner ?? null, grants.length);
    if (wrong !== null) setProblem({ at: FORM, text: wrong });
    else if (await change(granteeOf(kind, given), level, FORM)) setName("");
    field.current?.focus();
  }

  const problemAt = (at: string) =>
    problem?.at === at && (
      <p className="field-problem" id={`${id}-problem`} role="alert">
        {problem.text}
      </p>
    );
  const describe = (at: string) => (problem?.at === at ? { "aria-describedby": `${id}-problem`, "aria-invalid": true } : {});

  return (
    <Dialog title={mayShare ? strings.sharing.title : strings.sharing.people} onClose={onClose}>
      {error !== null && list === null && <ProblemNote error={error} />}
      {list && (
        <ul className="share-list" aria-label={strings.sharing.people}>
          <li>
            <span className="share-name">{marked(list.owner)}</span>
            {strings.sharing.owner}
          </li>
          {grants
            .filter(({ grantee }) => grantee !== TENANT || !mayShare)
            .map(({ grantee, access }) => (
              <li key={grantee}>
                <span className="share-name">{marked(nameOf(grantee))}</span>
                {mayShare ? (
                  <>
                    <Level label={strings.sharing.accessOf(nameOf(grantee))} value={access} about={describe(grantee)} onSelect={(level) => select(grantee, level)} />
                    <button
                      className="icon-button"
                      type="button"
                      title={strings.sharing.removeOne(nameOf(grantee))}
                      onClick={() => void change(grantee, null).then((done) => done && field.current?.focus())}
                    >
                      <Icon name="close" />
                      <span className="hidden">{strings.sharing.removeOne(nameOf(grantee))}</span>
                    </button>
                  </>
                ) : (
                  levelName(access)
                )}
                {problemAt(grantee)}
              </li>
            ))}
          {mayShare && (
            <li className="share-all">
              <span className="share-name">{nameOf(TENANT)}</span>
              <Level label={strings.sharing.accessOf(nameOf(TENANT))} value={all} optional about={describe(TENANT)} onSelect={(level) => select(TENANT, level)} />
              {problemAt(TENANT)}
            </li>
          )}
        </ul>
      )}
      {list && !mayShare && grants.length === 0 && <p>{strings.sharing.nobody}</p>}
      {mayShare && (
        <form className="share-form" onSubmit={(event) => void add(event)}>
          <label className="share-field">
            {strings.sharing.name}
            <input className="field-box" ref={field} autoComplete="off" autoCapitalize="none" spellCheck={false} {...describe(FORM)} value={name} onChange={(event) => setName(event.target.value)} />
          </label>
          <select className="field-box" aria-label={strings.sharing.kind} value={kind} onChange={(event) => setKind(event.target.value as Kind)}>
            {KINDS.map((each) => (
              <option key={each} value={each}>
                {strings.sharing.kinds[each]}
              </option>
            ))}
          </select>
          <Level label={strings.sharing.access} value={level} onSelect={(chosen) => setLevel(chosen ?? "read")} />
          <button className="button primary" type="submit" disabled={name.trim() === ""}>
            {strings.sharing.add}
          </button>
          {problemAt(FORM)}
          <p className="dock-note">{strings.sharing.hint}</p>
        </form>
      )}
      <p className="hidden" role="status">
        {news}
      </p>
      <div className="dialog-actions">
        <button className="button" type="button" onClick={onClose}>
          {strings.common.done}
        </button>
      </div>
    </Dialog>
  );
}

interface LevelProps {
  label: string;
  value: string | null;
  /** Whether there can be no access. */
  optional?: boolean;
  about?: object;
  onSelect(level: Access | null): void;
}

function Level({ label, value, optional = false, about, onSelect }: LevelProps) {
  return (
    <select className="field-box" aria-label={label} {...about} value={value ?? ""} onChange={(event) => onSelect((event.target.value || null) as Access | null)}>
      {optional && <option value="">{strings.sharing.noAccess}</option>}
      {LEVELS.map((level) => (
        <option key={level} value={level}>
          {levelName(level)}
        </option>
      ))}
    </select>
  );
}
