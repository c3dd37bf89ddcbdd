// A page that the agent asks the person to open. Only a press of the button opens it, and the card shows the host
// first.

import { useState } from "react";
import type { ElicitationAnswer, RequestItem } from "@acp-gateway/client";
import { text, visible } from "@acp-gateway/client/read";
import { useArmed } from "../card";
import type { Act } from "../act";
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
    <Card request={request} head="The agent asks you to open a page" icon="fetch">
      {url ? (
        <div className="link">
          <p>
            It is at <strong className="link-host">{url.host}</strong>
          </p>
          <p className="link-whole">{visible(url.href)}</p>
          {url.protocol === "http:" && <p className="warn">What you send there is not encrypted.</p>}
          {url.username !== "" && <p className="warn">The name before the @ is no part of the host.</p>}
        </div>
      ) : (
        <p className="warn">Its address is none that a browser may open.</p>
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
            Open the page
          </a>
        )}
        <button className="button" type="button" aria-disabled={!armed || busy} onClick={() => void answer({ action: "decline" })}>
          Decline
        </button>
        <button className="button" type="button" aria-disabled={!armed || busy} onClick={() => void answer({ action: "cancel" })}>
          Dismiss
        </button>
      </div>
    </Card>
  );
}

function parsed(value: unknown): URL | null {
  const url = URL.parse(text(value) ?? "");
  return url && /^https?:$/.test(url.protocol) && url.host !== "" ? url : null;
}
