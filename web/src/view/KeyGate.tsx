// Shown when there is no key, or when the gateway refused the one that was there.

import { useState, type FormEvent } from "react";
import { strings } from "../strings";
import { Words } from "./Words";

interface Props {
  refused: boolean;
  onKey(key: string, keep: boolean): void;
}

export function KeyGate({ refused, onKey }: Props) {
  const [key, setKey] = useState("");
  const [keep, setKeep] = useState(false);
  const [malformed, setMalformed] = useState(false);

  function submit(event: FormEvent) {
    event.preventDefault();
    const given = pastedKey(key);
    if (given) onKey(given, keep);
    else setMalformed(true);
  }

  return (
    <main className="gate">
      <form className="gate-card" onSubmit={submit}>
        <h1>acp-gateway</h1>
        {refused ? (
          <div className="problem" role="alert">
            <p className="problem-title">{strings.key.refused}</p>
            <p className="problem-hint">
              <Words text={strings.key.refusedHint} />
            </p>
          </div>
        ) : (
          <p>
            <Words text={strings.key.ask} />
          </p>
        )}
        <label htmlFor="key">{strings.key.field}</label>
        <input
          id="key"
          className="field-box"
          type="password"
          autoComplete="off"
          spellCheck={false}
          // A person whose key was revoked may be typing a message.
          autoFocus={!refused}
          required
          aria-invalid={malformed}
          aria-describedby={malformed ? "key-malformed" : undefined}
          value={key}
          onChange={(event) => setKey(event.target.value)}
        />
        {malformed && (
          <p id="key-malformed" className="field-problem" role="alert">
            {strings.key.malformed}
          </p>
        )}
        <label className="check">
          <input type="checkbox" checked={keep} onChange={(event) => setKeep(event.target.checked)} />
          <span>
            {strings.key.keep}
            <small>{strings.key.keepHint}</small>
          </span>
        </label>
        <button className="button primary" type="submit">
          {strings.key.goOn}
        </button>
      </form>
    </main>
  );
}

/** People paste the whole link as often as the key alone. A key is plain ASCII without spaces; anything else is a slip. */
function pastedKey(given: string): string | null {
  const mark = given.indexOf("#key=");
  const key = (mark < 0 ? given : given.slice(mark + 5)).trim();
  return /^[\x21-\x7e]+$/.test(key) ? key : null;
}
