// The frame of a request: its text, its content and its buttons.

import { useRef, type ReactNode } from "react";
import type { RequestItem } from "@acp-gateway/client";
import { clock } from "../../model/words";
import { strings } from "../../strings";
import { useFocusAfter } from "../card";
import { QUESTION_ID } from "../focus";
import { Icon } from "../Icon";

interface Props {
  request: RequestItem;
  head: string;
  icon: string;
  children: ReactNode;
}

export function Card({ request, head, icon, children }: Props) {
  const card = useRef<HTMLElement>(null);
  useFocusAfter(card);
  return (
    <section id={QUESTION_ID} className="permission question" ref={card} aria-label={`${head}: ${request.title}`}>
      <p className="permission-head">
        <Icon name={icon} /> {head}
      </p>
      <p className="permission-title">{request.title}</p>
      {request.deadline && <p className="permission-note">{strings.questions.cancelledAt(clock(request.deadline))}</p>}
      {children}
    </section>
  );
}
