// A permission that the agent asks for, with all the answers that it offers.

import { useEffect, useRef, useState } from "react";
import { record, records, text } from "../model/read";
import type { RequestItem, Terminal } from "../model/state";
import { clock } from "../model/words";
import { focusMessage, QUESTION_ID } from "./focus";
import { Icon } from "./Icon";
import { ToolContent } from "./ToolContent";

export type Answer = { optionId: string } | { cancelled: true };

interface Props {
  request: RequestItem;
  terminals: Record<string, Terminal>;
  onAnswer(answer: Answer): Promise<boolean>;
}

/** A button that appears under a moving pointer must not be pressed by it. */
const ARM_MS = 400;

export function PermissionCard({ request, terminals, onAnswer }: Props) {
  const card = useRef<HTMLElement>(null);
  const [armed, setArmed] = useState(false);
  const [busy, setBusy] = useState(false);

  async function answer(given: Answer) {
    if (!armed || busy) return;
    setBusy(true);
    // When it worked the log takes the card away; until then nothing more can be pressed.
    if (!(await onAnswer(given))) setBusy(false);
  }
  const answerRef = useRef(answer);
  useEffect(() => {
    answerRef.current = answer;
  });

  useEffect(() => {
    const timer = setTimeout(() => setArmed(true), ARM_MS);
    return () => clearTimeout(timer);
  }, []);

  // Focus comes to the card and not to a button, so that a key that was on its way answers nothing.
  useEffect(() => {
    if (!isTyping()) card.current?.focus({ preventScroll: true });
    // When the card goes and takes the focus with it, it goes back to where the next message is written.
    return () => {
      if (document.activeElement === null || document.activeElement === document.body) focusMessage();
    };
  }, []);

  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.altKey || event.metaKey || isEditable(document.activeElement)) return;
      const option = request.options[Number(event.key) - 1];
      if (!option || !/^[1-9]$/.test(event.key)) return;
      event.preventDefault();
      void answerRef.current({ optionId: option.optionId });
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [request.options]);

  const toolCall = record(request.params["toolCall"]);
  const content = records(toolCall?.["content"]);
  return (
    <section id={QUESTION_ID} className="permission" ref={card} tabIndex={-1} aria-label={`The agent asks permission: ${request.title}`}>
      <p className="permission-head">
        <Icon name={text(toolCall?.["kind"]) ?? "other"} /> The agent asks permission
      </p>
      <p className="permission-title">{request.title || "Go on?"}</p>
      {request.deadline && <p className="permission-note">It waits until {clock(request.deadline)}.</p>}
      {content.length > 0 && (
        <div className="permission-content">
          <ToolContent content={content} terminals={terminals} />
        </div>
      )}
      <div className="permission-options">
        {request.options.map((option, index) => (
          <button
            key={option.optionId}
            className={`button option-${option.kind}`}
            type="button"
            aria-disabled={!armed || busy}
            aria-keyshortcuts={index < 9 ? String(index + 1) : undefined}
            onClick={() => void answer({ optionId: option.optionId })}
          >
            {index < 9 && <kbd aria-hidden="true">{index + 1}</kbd>}
            <span className="option-name">{option.name}</span>
          </button>
        ))}
        {request.options.length === 0 && (
          <button className="button" type="button" aria-disabled={!armed || busy} onClick={() => void answer({ cancelled: true })}>
            Dismiss
          </button>
        )}
      </div>
    </section>
  );
}

/** Somebody who is in the middle of a sentence keeps the focus. */
function isTyping(): boolean {
  const active = document.activeElement;
  return isEditable(active) && (!(active instanceof HTMLTextAreaElement) || active.value !== "");
}

function isEditable(element: Element | null): boolean {
  return element instanceof HTMLTextAreaElement || element instanceof HTMLInputElement || element instanceof HTMLSelectElement;
}
