// The queued messages, and the actions on each.

import { useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import { blocksText, type GatewayClient, type Turn } from "@acp-gateway/client";
import { strings } from "../strings";
import type { Act } from "./act";
import { ContentBlocks } from "./ContentBlocks";
import { focusMessageIfFree } from "./focus";
import { Icon } from "./Icon";
import { TextForm } from "./TextForm";

interface Props {
  client: GatewayClient;
  sessionId: string;
  /** The queued turns, in their order. */
  turns: Turn[];
  /** The prompt of the running turn. */
  running: string | null;
  /** Whether the key may change the queue. */
  mayChange: boolean;
  act: Act;
  /** Receives a text that a person changed in a message which has started or was removed meanwhile. */
  onLate(text: string): void;
}

/** A change of a message by a person. */
interface Edit {
  promptId: string;
  before: string;
  text: string;
  /** The change is on its way to the gateway. */
  saves: boolean;
}

export function Queue({ client, sessionId, turns, running, mayChange, act, onLate }: Props) {
  const queued = turns.flatMap((turn) => (turn.promptId === null ? [] : [{ turn, promptId: turn.promptId }]));
  const [edited, setEdited] = useState<Edit | null>(null);
  const isLate = edited !== null && !queued.some(({ promptId }) => promptId === edited.promptId);
  // In the commit without the form: no key is pressed between the form and the message field.
  useLayoutEffect(() => {
    // The response says whether a change that is on its way was in time.
    if (!isLate || edited.saves) return;
    setEdited(null);
    if (edited.text !== edited.before) onLate(edited.text);
  }, [isLate, edited, onLate]);

  // The focus is in the form until it disappears.
  const edits = edited !== null;
  useLayoutEffect(() => (edits ? focusMessageIfFree : undefined), [edits]);

  if (queued.length === 0) return null;
  const change = (promptId: string, changes: Parameters<GatewayClient["changePrompt"]>[2]) => act(() => client.changePrompt(sessionId, promptId, changes));
  const cancel = (promptId: string) => client.cancelPrompt(sessionId, promptId);
  const sendNow = async (promptId: string, turn: string) => {
    const next = queued[0]!.promptId;
    if (next !== promptId) await client.changePrompt(sessionId, promptId, { before: next });
    await cancel(turn);
  };
  return (
    <section className="queue" aria-label={strings.queue.name}>
      <p className="queue-heading">{running === null ? strings.queue.queued : strings.queue.sentLater}</p>
      <ol role="list">
        {queued.map(({ turn, promptId }, place) =>
          edited?.promptId === promptId ? (
            <li key={promptId}>
              <TextForm
                className="queue-edit"
                label={strings.queue.message}
                text={edited.text}
                save={strings.common.save}
                onText={(text) => setEdited({ ...edited, text })}
                onCancel={() => setEdited(null)}
                onSave={(text) => {
                  setEdited({ ...edited, saves: true });
                  void change(promptId, { prompt: text }).then((done) => {
                    setEdited((now) => {
                      // A person may have begun to change another message, or goes on in this one.
                      if (now?.promptId !== promptId) return now;
                      return done && now.text === text ? null : { ...now, before: done ? text : now.before, saves: false };
                    });
                  });
                }}
              />
            </li>
          ) : (
            <Row
              key={promptId}
              turn={turn}
              place={place}
              length={queued.length}
              mayChange={mayChange}
              onSend={running === null ? null : () => void act(() => sendNow(promptId, running)).then(focusAfter)}
              // Before the message that follows the new place.
              onMove={(step) => void change(promptId, { before: queued[step === -1 ? place - 1 : place + 2]?.promptId ?? null })}
              onEdit={(text) => setEdited({ promptId, before: text, text, saves: false })}
              onRemove={() => void act(() => cancel(promptId)).then(focusAfter)}
            />
          ),
        )}
      </ol>
    </section>
  );
}

function focusAfter(done: boolean): void {
  if (done) focusMessageIfFree();
}

interface RowProps {
  turn: Turn;
  place: number;
  length: number;
  mayChange: boolean;
  /** Stops the running turn, so that this message is next. Null if no turn is running. */
  onSend: (() => void) | null;
  onMove(step: -1 | 1): void;
  onEdit(text: string): void;
  onRemove(): void;
}

function Row({ turn, place, length, mayChange, onSend, onMove, onEdit, onRemove }: RowProps) {
  const [open, setOpen] = useState(false);
  const id = useId();
  const row = useRef<HTMLLIElement>(null);
  // A row that moves by keys stays in view.
  useEffect(() => {
    if (row.current?.contains(document.activeElement)) row.current.scrollIntoView({ block: "nearest" });
  }, [place]);
  const words = blocksText(turn.prompt);
  const count = turn.prompt.filter(({ type }) => type !== "text").length;
  const attachments = count > 0 ? strings.queue.attachments(count) : "";
  return (
    <li ref={row}>
      <div className={open ? "queued open" : "queued"}>
        <span className="queue-meta" aria-hidden="true">
          {place + 1}
        </span>
        <button className="row-opener queue-words" id={id} type="button" dir="auto" title={strings.queue.whole} aria-expanded={open} onClick={() => setOpen(!open)}>
          <span className="queue-text">{words || attachments}</span>
          <Icon name="open" className="queue-open" />
        </button>
        {words !== "" && attachments !== "" && <span className="queue-meta">{attachments}</span>}
        {mayChange && (
          <span className="queue-actions" role="group" aria-labelledby={id}>
            {onSend && (
              <button className="link-button" type="button" title={strings.queue.sendNowTitle} onClick={once(onSend)}>
                {strings.queue.sendNow}
              </button>
            )}
            {length > 1 && (
              <>
                <Action name={strings.queue.sendEarlier} icon="up" disabled={place === 0} onPress={() => onMove(-1)} />
                <Action name={strings.queue.sendLater} icon="down" disabled={place === length - 1} onPress={() => onMove(1)} />
              </>
            )}
            {/* A message with pictures or files keeps them, so only a text alone is edited here. */}
            {words !== "" && count === 0 && <Action name={strings.queue.edit} icon="edit" onPress={() => onEdit(words)} />}
            <Action name={strings.queue.remove} icon="close" onPress={onRemove} />
          </span>
        )}
      </div>
      {open && (
        <div className="queue-whole" tabIndex={0} role="group" aria-labelledby={id}>
          <ContentBlocks blocks={turn.prompt} plain />
        </div>
      )}
    </li>
  );
}

/** A button that moves its row to an end is disabled then, and keeps the focus. */
function Action({ name, icon, disabled = false, onPress }: { name: string; icon: string; disabled?: boolean; onPress(): void }) {
  return (
    <button className="icon-button" type="button" title={name} aria-disabled={disabled || undefined} onClick={once(() => disabled || onPress())}>
      <Icon name={icon} />
      <span className="hidden">{name}</span>
    </button>
  );
}

/** Without the second click of a double click: after the first one, another row can be below the pointer. */
function once(action: () => void) {
  return (event: React.MouseEvent) => {
    if (event.detail < 2) action();
  };
}
