// A form of the agent. The gateway validates the answer, and each error is shown at its field.

import { useMemo, useRef, useState, type FormEvent } from "react";
import { ApiProblem, type ElicitationAnswer, type RequestItem } from "@acp-gateway/client";
import { line, lookup, record } from "@acp-gateway/client/read";
import { contentOf, fieldErrors, fieldsOf, firstValues, type Values } from "../../model/form";
import { strings } from "../../strings";
import { useArmed } from "../card";
import { isWriting } from "../typing";
import type { Act } from "../act";
import { Card } from "./Card";
import { FormField } from "./FormField";

interface Props {
  request: RequestItem;
  act: Act;
  send(answer: ElicitationAnswer): Promise<void>;
}

export function FormCard({ request, act, send }: Props) {
  const armed = useArmed();
  const form = useRef<HTMLFormElement>(null);
  const schema = record(request.params["requestedSchema"]);
  const fields = useMemo(() => fieldsOf(schema), [schema]);
  const [values, setValues] = useState<Values>(() => firstValues(fields));
  const [errors, setErrors] = useState<Record<string, string>>({});
  const [busy, setBusy] = useState(false);
  const wrong = Object.keys(errors).length;

  function show(found: Record<string, string>) {
    setErrors(found);
    const first = fields.findIndex((field) => Object.hasOwn(found, field.name));
    // The field is drawn with its error before it is read out.
    requestAnimationFrame(() => {
      // The response can be later than the next thing that a person does.
      if (isWriting()) return;
      form.current?.querySelectorAll<HTMLElement>("[data-field]")[first]?.focus();
    });
  }

  async function answer(given: ElicitationAnswer) {
    if (!armed || busy) return;
    setBusy(true);
    let placed: Record<string, string> | null = null;
    const done = await act(async () => {
      try {
        await send(given);
      } catch (reason) {
        placed = reason instanceof ApiProblem ? fieldErrors(reason.problem, fields) : null;
        if (!placed) throw reason;
      }
    });
    if (placed) show(placed);
    // After a success, the log removes the card. Until then the buttons are disabled.
    if (placed || !done) setBusy(false);
  }

  function submit(event: FormEvent) {
    event.preventDefault();
    const filled = contentOf(fields, values);
    if (Object.keys(filled.errors).length > 0) show(filled.errors);
    else void answer({ action: "accept", content: filled.content });
  }

  return (
    <Card request={request} head={strings.requests.asks} icon="edit">
      <form ref={form} className="form" noValidate onSubmit={submit}>
        <div className="form-fields">
          {line(schema?.["title"]) && <p className="form-title">{line(schema?.["title"])}</p>}
          {line(schema?.["description"]) && <p className="permission-text">{line(schema?.["description"])}</p>}
          {fields.map((field) => (
            <FormField
              key={field.name}
              field={field}
              id={`${request.requestId}-${field.name}`}
              value={values[field.name] ?? field.first}
              error={lookup(errors, field.name) ?? null}
              onChange={(value) => setValues((before) => ({ ...before, [field.name]: value }))}
            />
          ))}
        </div>
        <p className="form-wrong" role="alert">
          {wrong > 0 && strings.questions.wrongFields(wrong)}
        </p>
        <div className="permission-options">
          <button className="button primary" type="submit" aria-disabled={!armed || busy}>
            {strings.common.send}
          </button>
          <button className="button" type="button" aria-disabled={!armed || busy} onClick={() => void answer({ action: "decline" })}>
            {strings.questions.decline}
          </button>
          <button className="button" type="button" aria-disabled={!armed || busy} onClick={() => void answer({ action: "cancel" })}>
            {strings.common.dismiss}
          </button>
        </div>
      </form>
    </Card>
  );
}
