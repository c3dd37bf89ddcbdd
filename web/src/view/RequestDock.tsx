// The open requests, docked above the composer so that they are always visible.

import { useEffect, useRef, useState } from "react";
import { type GatewayClient, type RequestItem, type SessionLog, toolOf } from "@acp-gateway/client";
import { strings } from "../strings";
import { usePart } from "./lazy";
import { PermissionCard } from "./PermissionCard";
import { isTyping } from "./typing";
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

/** Elsewhere a question has one size. */
const isPhone = () => matchMedia("(max-width: 700px)").matches;

/** How often the page looks whether a person still types. */
const TYPING_MS = 300;

export function RequestDock({ log, requests, client, sessionId, act, onAnswer }: Props) {
  /** On a phone, the question covers the conversation until a person makes it small, but not while a person types. */
  const [small, setSmall] = useState(isTyping);
  const [first] = requests;
  const id = first?.requestId;
  const shown = useRef(id);
  /** A person has chosen the size. */
  const chosen = useRef(false);
  useEffect(() => {
    if (shown.current !== id) {
      setSmall(isTyping());
      chosen.current = false;
    }
    shown.current = id;
  }, [id]);
  useEffect(() => {
    if (!small || chosen.current) return;
    const timer = setInterval(() => !isTyping() && setSmall(false), TYPING_MS);
    return () => clearInterval(timer);
  }, [small, id]);
  if (!first) return null;
  const more = requests.length - 1;
  return (
    <div className={small ? "requests small" : "requests"}>
      <button className="link-button requests-toggle" type="button" aria-expanded={!small}
        onClick={() => {
          chosen.current = true;
          setSmall(!small);
        }}
      >
        {small ? strings.requests.show : strings.requests.readFirst}
      </button>
      {first.method === "session/request_permission" ? (
        <PermissionCard
          key={first.requestId}
          request={first}
          shown={!small || !isPhone()}
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
      {more > 0 && <p className="requests-more">{strings.requests.more(more)}</p>}
    </div>
  );
}

const loadQuestions = () => import("./questions/Question");

function Asked(props: { request: RequestItem; client: GatewayClient; sessionId: string; act: Act }) {
  const questions = usePart(loadQuestions);
  if (questions.state === "here") return <questions.part.Question {...props} />;
  return (
    <section className="permission" aria-label={strings.requests.asks}>
      <p className="permission-title">{props.request.title || strings.requests.asksSomething}</p>
      {questions.state === "failed" && <p className="permission-note">{strings.requests.cannotShow}</p>}
    </section>
  );
}
