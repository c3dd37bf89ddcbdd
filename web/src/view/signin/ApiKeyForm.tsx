// A form for an API key. The key is in the field alone: it is not stored, and the field is empty after it was sent.

import { useId, useRef, type FormEvent } from "react";
import { strings } from "../../strings";

interface Props {
  busy: boolean;
  onKey(key: string): void;
}

export function ApiKeyForm({ busy, onKey }: Props) {
  const id = useId();
  const field = useRef<HTMLInputElement>(null);

  function submit(event: FormEvent) {
    event.preventDefault();
    const key = field.current?.value.trim() ?? "";
    if (busy || key === "" || !field.current) return;
    field.current.value = "";
    onKey(key);
  }

  return (
    <form className="sign-in-line" onSubmit={submit}>
      <label className="hidden" htmlFor={id}>
        {strings.signin.apiKey}
      </label>
      <input id={id} ref={field} type="password" placeholder={strings.signin.apiKey} maxLength={4096} autoComplete="off" autoCapitalize="off" spellCheck={false} />
      <button className="button small" type="submit" aria-disabled={busy}>
        {strings.signin.signIn}
      </button>
    </form>
  );
}
