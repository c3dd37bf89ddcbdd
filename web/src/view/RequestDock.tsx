// The open requests, docked above the composer so that they are always visible.

import { useEffect, useState } from "react";
import { type GatewayClient, type RequestItem, type SessionLog, toolOf } from "@acp-gateway/client";
import { usePart } from "./lazy";
import { PermissionCard } from "./PermissionCard";
import type { Act } from "./act";

interface Props {
  log: SessionLog;
  requests: RequestItem[];
  client: GatewayClient;
  sessionId: string;
  act: Act;
  /** Called before a permission is answered here. */
  onAnswer(requestId: string): void;
}

export function RequestDock({ log, requests, client, sessionId, act, onAnswer }: Props) {
  /** On a phone, the question covers the conversation until a person makes it small. */
  const [small, setSmall] = useState(false);
  const [first] = requests;
  const id = first?.requestId;
  useEffect(() => setSmall(false), [id]);
  if (!first) return null;
  const more = requests.length - 1;
  return (
    <div className={small ? "requests small" : "requests"}>
      <button className="link-button requests-toggle" type="button" aria-expanded={!small} onClick={() => setSmall(!small)}>
        {small ? "Show the question of the agent" : "Read the conversation first"}
      </button>
      {first.method === "session/request_permission" ? (
        <PermissionCard
          key={first.requestId}
          request={first}
          tool={toolOf(log, first)}
          terminals={log.terminals}
          isDenied={(option) => log.deniedModes.some((denied) => denied.modeId === option)}
          onAnswer={(answer) => {
            onAnswer(first.requestId);
            return act(() => client.answerPermission(sessionId, first.requestId, answer));
          }}
        />
      ) : (
        <Asked key={first.requestId} request={first} client={client} sessionId={sessionId} act={act} />
      )}
      {more > 0 && <p className="requests-more">{more === 1 ? "One more question waits." : `${more} more questions wait.`}</p>}
    </div>
  );
}

const loadQuestions = () => import("./questions/Question");

function Asked(props: { request: RequestItem; client: GatewayClient; sessionId: string; act: Act }) {
  const questions = usePart(loadQuestions);
  if (questions.state === "here") return <questions.part.Question {...props} />;
  return (
    <section className="permission" aria-label="The agent asks">
      <p className="permission-title">{props.request.title || "The agent asks something."}</p>
      {questions.state === "failed" && <p className="permission-note">This question cannot be shown. Load the page again.</p>}
    </section>
  );
}
