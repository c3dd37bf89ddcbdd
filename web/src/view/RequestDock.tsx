// What waits for an answer, docked above the composer so that it is never scrolled away.

import type { Client } from "../api/client";
import type { RequestItem, SessionLog } from "../model/state";
import { PermissionCard } from "./PermissionCard";
import type { Act } from "./SessionView";

interface Props {
  log: SessionLog;
  requests: RequestItem[];
  client: Client;
  sessionId: string;
  act: Act;
}

export function RequestDock({ log, requests, client, sessionId, act }: Props) {
  const [first] = requests;
  if (!first) return null;
  const more = requests.length - 1;
  return (
    <div className="requests">
      {first.method === "session/request_permission" ? (
        <PermissionCard
          key={first.requestId}
          request={first}
          terminals={log.terminals}
          onAnswer={(answer) => act(() => client.answerPermission(sessionId, first.requestId, answer))}
        />
      ) : (
        <OtherRequest
          request={first}
          onDecline={first.method === "elicitation/create" ? () => void act(() => client.declineElicitation(sessionId, first.requestId)) : null}
        />
      )}
      {more > 0 && <p className="requests-more">{more === 1 ? "One more question waits." : `${more} more questions wait.`}</p>}
    </div>
  );
}

function OtherRequest({ request, onDecline }: { request: RequestItem; onDecline: (() => void) | null }) {
  return (
    <section className="permission" aria-label="The agent asks">
      <p className="permission-title">{request.title || "The agent asks something."}</p>
      <p className="permission-note">This page cannot answer {request.method}. Any other client of the gateway can.</p>
      {onDecline && (
        <div className="permission-options">
          <button className="button" type="button" onClick={onDecline}>
            Decline
          </button>
        </div>
      )}
    </section>
  );
}
