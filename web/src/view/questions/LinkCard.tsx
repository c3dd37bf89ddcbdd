// A page that the agent asks the person to open. Only a press of the button opens it, and the card shows the host
// first.

import { useState } from "react";
import type { ElicitationAnswer, RequestItem } from "@acp-gateway/client";
import { text, visible } from "@acp-gateway/client/read";
import { strings } from "../../strings";
import { useArmed } from "../card";
import type { Act } from "../act";
import { Words } from "../Words";
import { Card } from "./Card";

interface Props {
  request: RequestItem;
  act: Act;
  send(answer: ElicitationAnswer): Promise<void>;
}

export function LinkCard({ request, act, send }: Props) {
  const armed = useArmed();
  const [busy, setBusy] = useState(false);
  const url = parsed(request.params["url"]);

  async function answer(given: ElicitationAnswer) {
    if (!armed || busy) return;
    setBusy(true);
    if (!(await act(() => send(given)))) setBusy(false);
  }

  return (
    <Card request={request} head={strings.questions.asksToOpen} icon="fetch">
      {url ? (
        <div className="link">
          <p>
            <Words text={strings.questions.isAt}>
              <strong className="link-host">{url.host}</strong>
            </Words>
          </p>
          <p className="link-whole">{visible(url.href)}</p>
          {url.protocol === "http:" && <p className="warn">{strings.questions.notEncrypted}</p>}
          {url.username !== "" && <p className="warn">{strings.questions.notHost}</p>}
        </div>
      ) : (
        <p className="warn">{strings.questions.noAddress}</p>
      )}
      <div className="permission-options">
        {url && (
          <a
            className="button primary"
            href={url.href}
            target="_blank"
            rel="noopener noreferrer"
            aria-disabled={!armed || busy}
            onClick={(event) => {
              if (armed && !busy) void answer({ action: "accept" });
              else event.preventDefault();
            }}
          >
            {strings.questions.openPage}
          </a>
        )}
        <button className="button" type="button" aria-disabled={!armed || busy} onClick={() => void answer({ action: "decline" })}>
          {strings.questions.decline}
        </button>
        <button className="button" type="button" aria-disabled={!armed || busy} onClick={() => void answer({ action: "cancel" })}>
          {strings.common.dismiss}
        </button>
      </div>
    </Card>
  );
}

function parsed(value: unknown): URL | null {
  const url = URL.parse(text(value) ?? "");
  return url && /^https?:$/.test(url.protocol) && url.host !== "" ? url : null;
}
