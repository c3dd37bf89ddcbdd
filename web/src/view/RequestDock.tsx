// The open requests, docked above the composer so that they are always visible.

import { useLayoutEffect, useRef, useState } from "react";
import { type GatewayClient, type RequestItem, type SessionLog, toolOf } from "@acp-gateway/client";
import { strings } from "../strings";
import { usePart } from "./lazy";
import { PermissionCard } from "./PermissionCard";
import { isWriting } from "./typing";
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

/** The time after a person has left a field. A press of a button beside the field is complete then. */
const LEFT_MS = 1_500;

export function RequestDock({ log, requests, client, sessionId, act, onAnswer }: Props) {
  /** On a phone, the question covers the conversation and the message field, but not while a person writes. */
  const [small, setSmall] = useState(isWriting);
  const [first] = requests;
  const id = first?.requestId;
  /** A person has made it small. */
  const keepsSmall = useRef(false);
  useLayoutEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const follow = () => {
      clearTimeout(timer);
      if (isWriting()) setSmall(true);
      else if (!keepsSmall.current) timer = setTimeout(() => setSmall(false), LEFT_MS);
    };
    keepsSmall.current = false;
    setSmall(isWriting());
    document.addEventListener("focusin", follow);
    document.addEventListener("focusout", follow);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("focusin", follow);
      document.removeEventListener("focusout", follow);
    };
  }, [id]);
  if (!first) return null;
  const more = requests.length - 1;
  return (
    <div className={small ? "requests small" : "requests"}>
      <button className="link-button requests-toggle" type="button" aria-expanded={!small}
        onClick={() => {
          keepsSmall.current = !small;
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
