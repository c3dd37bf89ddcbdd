// A request of any other kind. A person sees the whole request, and answers with a result of the protocol or an error.

import { useMemo, useState, type FormEvent } from "react";
import type { RequestItem } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { actionOf, type Action } from "../../model/action";
import { risksOf } from "../../model/risk";
import { strings } from "../../strings";
import { ActionView } from "../ActionView";
import { useArmed } from "../card";
import type { Act } from "../act";
import { RiskMarks } from "../RiskMarks";
import { Card } from "./Card";

type Answer = { result: unknown } | { error: { code: number; message: string } };

interface Props {
  request: RequestItem;
  act: Act;
  send(answer: Answer): Promise<void>;
}

/** Examples of the results of the protocol's requests. */
const SHAPES: Record<string, string> = {
  "fs/read_text_file": '{ "content": "" }',
  "terminal/create": '{ "terminalId": "1" }',
  "terminal/output": '{ "output": "", "truncated": false, "exitStatus": null }',
  "terminal/wait_for_exit": '{ "exitCode": 0, "signal": null }',
};

const REFUSED = { code: -32603, message: "A person refused it." };

export function OtherCard({ request, act, send }: Props) {
  const armed = useArmed();
  const [busy, setBusy] = useState(false);
  const [written, setWritten] = useState(lookup(SHAPES, request.method) ?? "{}");
  const [wrong, setWrong] = useState<string | null>(null);
  const id = `${request.requestId}-result`;
  const command = useMemo(() => (request.method === "terminal/create" ? commandOf(request) : null), [request]);

  async function answer(given: Answer) {
    if (!armed || busy) return;
    setBusy(true);
    if (!(await act(() => send(given)))) setBusy(false);
  }

  function submit(event: FormEvent) {
    event.preventDefault();
    let result: unknown;
    try {
      result = JSON.parse(written);
    } catch {
      setWrong(strings.questions.notJson);
      document.getElementById(id)?.focus();
      return;
    }
    setWrong(null);
    void answer({ result });
  }

  return (
    <Card request={request} head={strings.questions.noForm} icon="other">
      <form noValidate className="form" onSubmit={submit}>
        <div className="form-fields">
          <p className="permission-note">
            <code>{visible(request.method)}</code>
          </p>
          {command && (
            <>
              <div className="permission-line">
                <RiskMarks risks={risksOf("execute", command)} />
              </div>
              <ActionView action={command} title={request.title} />
            </>
          )}
          <pre className="output" tabIndex={0} role="group" aria-label={strings.questions.whatIsAsked}>
            {visible(JSON.stringify(request.params, null, 2))}
          </pre>
          <div className="field">
            <label className="field-name" htmlFor={id}>
              {strings.questions.result}
            </label>
            <textarea
              id={id}
              className="mono"
              rows={3}
              spellCheck={false}
              value={written}
              aria-invalid={wrong !== null}
              {...(wrong !== null ? { "aria-describedby": `${id}-wrong` } : {})}
              onChange={(event) => setWritten(event.target.value)}
            />
            {wrong !== null && (
              <p className="field-wrong" id={`${id}-wrong`} role="alert">
                {wrong}
              </p>
            )}
          </div>
        </div>
        <div className="permission-options">
          <button className="button" type="button" aria-disabled={!armed || busy} onClick={() => void answer({ error: REFUSED })}>
            {strings.questions.refuse}
          </button>
          <button className="button" type="submit" aria-disabled={!armed || busy}>
            {strings.questions.sendResult}
          </button>
        </div>
      </form>
    </Card>
  );
}

/** The whole request is shown below the command. */
function commandOf({ params }: RequestItem): Action {
  return { ...actionOf({ rawInput: params }, null), input: null };
}
