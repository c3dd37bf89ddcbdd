// The end of a permission request that another client, or the gateway, answered while its card was open here.

import { useEffect, useRef, useState } from "react";
import { openRequests, type RequestItem, type SessionLog } from "@acp-gateway/client";
import { strings } from "../strings";
import { resolutionWords } from "./RequestLine";

/** The conversation has the answer too, so the note does not stay. */
const SHOWN_MS = 30_000;

/** Follows the request of the open card. The request is known after its end, unless it was answered here. */
export function useElsewhere(log: SessionLog, open: RequestItem | null) {
  const [elsewhere, setElsewhere] = useState<RequestItem | null>(null);
  const shown = useRef<string | null>(null);
  const here = useRef<string | null>(null);

  useEffect(() => {
    const previous = shown.current;
    shown.current = open?.method === "session/request_permission" ? open.requestId : null;
    if (open) setElsewhere(null);
    if (previous === null || previous === shown.current || previous === here.current) return;
    const ended = log.turns.flatMap((turn) => turn.items).find((item) => item.kind === "request" && item.requestId === previous);
    if (!open && ended?.kind === "request" && ended.resolution && ended.resolution.how !== "cancelled") setElsewhere(ended);
  }, [open?.requestId, openRequests(log).length]);

  useEffect(() => {
    if (!elsewhere) return;
    const timer = setTimeout(() => setElsewhere(null), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [elsewhere]);

  return { elsewhere, answeredHere: (request: string) => void (here.current = request), dismiss: () => setElsewhere(null) };
}

export function Elsewhere({ request, onDismiss }: { request: RequestItem; onDismiss(): void }) {
  return (
    <div className="elsewhere" role="status">
      <span className="elsewhere-words">
        <strong>{request.title || strings.requests.theRequest}</strong>: {request.resolution && resolutionWords(request, request.resolution)}
      </span>
      <button className="button small" type="button" onClick={onDismiss}>
        {strings.common.dismiss}
      </button>
    </div>
  );
}
