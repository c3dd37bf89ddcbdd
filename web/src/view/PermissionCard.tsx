// A permission that the agent asks for, with all the answers that it offers.

import { useContext, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { requestAction } from "../model/action";
import type { PermissionOption, RequestItem, Terminal, ToolItem } from "@acp-gateway/client";
import { lookup, records, text, visible } from "@acp-gateway/client/read";
import { requestRisks } from "../model/risk";
import { clock } from "../model/words";
import { strings } from "../strings";
import { ActionView } from "./ActionView";
import { useArmed, useEntered, useFocusAfter } from "./card";
import { typeIntoMessage, writesText } from "./typing";
import { QUESTION_ID } from "./focus";
import { Icon } from "./Icon";
import { RiskMarks } from "./RiskMarks";
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
  /** One of several cards on a page: digits do not answer it. */
  listed?: boolean;
}

/** A digit that needs a second press. */
interface Pressed {
  option: PermissionOption;
  /** What was typed until now: if it was the begin of a text, the text goes to the message field. */
  typed: string;
  at: number;
}

/** A second press within this time is a part of typed text, or of a key that bounces. */
const AGAIN_MS = 300;

export function PermissionCard({ request, tool, terminals, shown = true, isDenied, onAnswer, listed = false }: Props) {
  const card = useRef<HTMLElement>(null);
  const armed = useArmed(shown);
  const entered = useEntered();
  const agent = useContext(Where)?.agent ?? null;
  const [busy, setBusy] = useState(false);
  const [pressed, setPressed] = useState<Pressed | null>(null);
  useFocusAfter(card);

  const kind = text(request.toolCall?.["kind"]) ?? tool?.toolKind ?? null;
  const action = useMemo(() => requestAction(request, tool), [request, tool]);
  const risks = useMemo(() => requestRisks(kind, action, request), [kind, action, request]);
  const content = records(request.toolCall?.["content"]);
  // A change to a file is shown as lines, and its input has the same lines.
  const isShown = action.isComplete || (kind === "edit" && content.some((part) => part["type"] === "diff"));
  const proposed = risks.length > 0 ? undefined : request.options.find((option) => option.kind === "allow_once" && !isDenied(option.optionId));
  const mayAnswer = (option: PermissionOption) => armed && !busy && !isDenied(option.optionId);

  async function answer(given: Answer) {
    if (!armed || busy || ("optionId" in given && isDenied(given.optionId))) return;
    setBusy(true);
    setPressed(null);
    // After a success, the log removes the card. Until then the buttons are disabled.
    if (!(await onAnswer(given))) setBusy(false);
  }

  /** Whether one press of a digit is not enough: the answer lasts, or permits an action with a risk. */
  const needsTwo = ({ kind }: PermissionOption) => !(kind === "reject_once" || (kind === "allow_once" && risks.length === 0));

  function press(event: KeyboardEvent) {
    if (pressed && event.key === "Escape") {
      event.preventDefault();
      return setPressed(null);
    }
    if (!writesText(event.nativeEvent)) return;
    const option = /^[1-9]$/.test(event.key) ? request.options[Number(event.key) - 1] : undefined;
    const isAnswer = option && !listed && entered.isEntered() && mayAnswer(option) && (pressed === null || pressed.option === option);
    if (!isAnswer) {
      // The digit was the begin of a text. The browser adds this character to it.
      if (pressed) typeIntoMessage(pressed.typed);
      return setPressed(null);
    }
    event.preventDefault();
    if (event.repeat) return;
    if (pressed ? event.timeStamp - pressed.at >= AGAIN_MS : !needsTwo(option)) void answer({ optionId: option.optionId });
    else setPressed({ option, typed: `${pressed?.typed ?? ""}${event.key}`, at: pressed?.at ?? event.timeStamp });
  }

  return (
    <section
      id={listed ? undefined : QUESTION_ID}
      className={entered.entered ? "permission entered" : "permission"}
      ref={card}
      // Landmarks have different names. The cards of a list can have the same.
      role={listed ? "group" : undefined}
      aria-label={strings.requests.permission(request.title)}
      onKeyDown={press}
      {...entered.props}
    >
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
        <RiskMarks risks={risks} />
      </div>
      {request.description && request.description !== action.command && <p className="permission-text">{request.description}</p>}
      <div className="permission-body">
        <ActionView action={action} title={request.title} opensRaw={!isShown} />
        {content.length > 0 && (
          <div className="permission-content">
            <ToolContent content={content} terminals={terminals} />
          </div>
        )}
      </div>
      <div className="permission-options">
        {request.options.map((option, index) => (
          <button
            key={option.optionId}
            className={option === proposed ? "button primary" : "button"}
            type="button"
            aria-disabled={!mayAnswer(option)}
            title={isDenied(option.optionId) ? strings.composer.deniedMode : undefined}
            aria-keyshortcuts={index < 9 && !listed ? String(index + 1) : undefined}
            onClick={() => void answer({ optionId: option.optionId })}
          >
            {index < 9 && !listed && <kbd aria-hidden="true">{index + 1}</kbd>}
            <OptionIcon kind={option.kind} />
            <span className="option-name">{isDenied(option.optionId) ? strings.composer.denied(option.name) : option.name}</span>
            <OptionKind option={option} />
          </button>
        ))}
        {request.options.length === 0 && (
          <button className="button" type="button" aria-disabled={!armed || busy} onClick={() => void answer({ cancelled: true })}>
            {strings.common.dismiss}
          </button>
        )}
      </div>
      {!listed && (
        <p className="press-again" role="status">
          {pressed && strings.requests.pressAgain(pressed.typed[0]!, pressed.option.name)}
        </p>
      )}
    </section>
  );
}

function OptionIcon({ kind }: { kind: string }) {
  if (kind.startsWith("allow")) return <Icon name="check" className="option-allows" />;
  return kind.startsWith("reject") ? <Icon name="close" className="option-rejects" /> : <Icon name="warning" className="option-rejects" />;
}

/** The effect of the option, unless its name begins with the same words. The agent writes the name. */
function OptionKind({ option: { kind, name } }: { option: PermissionOption }) {
  const words = lookup(strings.requests.kinds, kind) ?? (kind === "" ? strings.requests.noKind : visible(kind));
  return name.toLowerCase().startsWith(words.toLowerCase()) ? null : <span className="option-kind">{words}</span>;
}
