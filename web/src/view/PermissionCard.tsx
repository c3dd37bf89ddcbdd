// A permission that the agent asks for, with all the answers that it offers.

import { useContext, useEffect, useRef, useState } from "react";
import { actionOf } from "../model/action";
import type { RequestItem, Terminal, ToolItem } from "@acp-gateway/client";
import { records, text } from "@acp-gateway/client/read";
import { riskOf } from "../model/risk";
import { clock } from "../model/words";
import { strings } from "../strings";
import { ActionView } from "./ActionView";
import { useArmed, useCardFocus } from "./card";
import { isEditable, typedJustNow } from "./typing";
import { QUESTION_ID } from "./focus";
import { Icon } from "./Icon";
import { ToolContent } from "./ToolContent";
import { Where } from "./where";

export type Answer = { optionId: string } | { cancelled: true };

interface Props {
  request: RequestItem;
  /** The card of the call that it is about, if the agent has shown the call already. */
  tool: ToolItem | null;
  terminals: Record<string, Terminal>;
  /** Whether it has its full size. On a phone, a small one shows its first line only. */
  shown?: boolean;
  /** Options that select a mode which no client can select. */
  isDenied(optionId: string): boolean;
  onAnswer(answer: Answer): Promise<boolean>;
  /** One of several cards on a page: it takes neither the focus nor the keys of the page. */
  listed?: boolean;
}

export function PermissionCard({ request, tool, terminals, shown = true, isDenied, onAnswer, listed = false }: Props) {
  const card = useRef<HTMLElement>(null);
  const armed = useArmed(shown);
  const agent = useContext(Where)?.agent ?? null;
  const [busy, setBusy] = useState(false);

  async function answer(given: Answer) {
    if (!armed || busy || ("optionId" in given && isDenied(given.optionId))) return;
    setBusy(true);
    // After a success, the log removes the card. Until then the buttons are disabled.
    if (!(await onAnswer(given))) setBusy(false);
  }
  const answerRef = useRef(answer);
  useEffect(() => {
    answerRef.current = answer;
  });

  useCardFocus(listed ? null : card);

  useEffect(() => {
    if (listed) return;
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.altKey || event.metaKey || isEditable(document.activeElement) || typedJustNow()) return;
      const option = request.options[Number(event.key) - 1];
      if (!option || !/^[1-9]$/.test(event.key)) return;
      event.preventDefault();
      void answerRef.current({ optionId: option.optionId });
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [request.options, listed]);

  const action = actionOf(request.toolCall, tool);
  const risk = riskOf(text(request.toolCall?.["kind"]) ?? tool?.toolKind ?? null, action.command);
  const content = records(request.toolCall?.["content"]);
  return (
    <section id={listed ? undefined : QUESTION_ID} className="permission" ref={card} tabIndex={-1} aria-label={strings.requests.permission(request.title)}>
      <p className="permission-head">
        <Icon name="waiting" /> {strings.requests.needsApproval}
        {agent !== null && <span className="permission-who">· {agent}</span>}
        <span className="permission-note">
          <Icon name="clock" />
          <span>{request.deadline ? strings.requests.rejectedAt(clock(request.deadline)) : strings.requests.waits}</span>
        </span>
      </p>
      <div className="permission-line">
        <p className="permission-title">{request.title || strings.requests.goOn}</p>
        {risk && (
          <p className="risk">
            <Icon name="warning" /> {risk.words}
          </p>
        )}
      </div>
      {request.description && <p className="permission-text">{request.description}</p>}
      <ActionView action={action} title={request.title} />
      {content.length > 0 && (
        <div className="permission-content">
          <ToolContent content={content} terminals={terminals} />
        </div>
      )}
      <div className="permission-options">
        {request.options.map((option, index) => (
          <button
            key={option.optionId}
            className={index === 0 && !risk && option.kind.startsWith("allow") ? `button primary option-${option.kind}` : `button option-${option.kind}`}
            type="button"
            aria-disabled={!armed || busy || isDenied(option.optionId)}
            title={isDenied(option.optionId) ? strings.composer.deniedMode : undefined}
            aria-keyshortcuts={index < 9 && !listed ? String(index + 1) : undefined}
            onClick={() => void answer({ optionId: option.optionId })}
          >
            {index < 9 && !listed && <kbd aria-hidden="true">{index + 1}</kbd>}
            <span className="option-name">{isDenied(option.optionId) ? strings.composer.denied(option.name) : option.name}</span>
          </button>
        ))}
        {request.options.length === 0 && (
          <button className="button" type="button" aria-disabled={!armed || busy} onClick={() => void answer({ cancelled: true })}>
            {strings.common.dismiss}
          </button>
        )}
      </div>
    </section>
  );
}
