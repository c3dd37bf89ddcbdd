// A form for an API key. The key is in the field alone: it is not stored, and the field is empty after it was sent.

import { useId, useRef, type FormEvent } from "react";

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
        API key
      </label>
      <input id={id} ref={field} type="password" placeholder="API key" maxLength={4096} autoComplete="off" autoCapitalize="off" spellCheck={false} />
      <button className="button small" type="submit" aria-disabled={busy}>
        Sign in
      </button>
    </form>
  );
}
