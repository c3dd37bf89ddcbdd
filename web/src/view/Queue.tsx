// The messages that wait until the running turn ends, with what a person can do about each.

import { useState } from "react";
import { blocksText, type GatewayClient, type Turn } from "@acp-gateway/client";
import { strings } from "../strings";
import type { Act } from "./act";
import { focusMessage } from "./focus";
import { Icon } from "./Icon";
import { TextForm } from "./TextForm";

interface Props {
  client: GatewayClient;
  sessionId: string;
  /** The queued turns, in their order. */
  turns: Turn[];
  /** The prompt of the running turn. */
  running: string | null;
  act: Act;
}

export function Queue({ client, sessionId, turns, running, act }: Props) {
  if (turns.length === 0) return null;
  const order = turns.map(({ promptId }) => promptId ?? "");
  const change = (promptId: string, changes: Parameters<GatewayClient["changePrompt"]>[2]) => act(() => client.changePrompt(sessionId, promptId, changes));
  const cancel = (promptId: string) => client.cancelPrompt(sessionId, promptId);
  const sendNow = async (promptId: string, turn: string) => {
    if (order[0] !== promptId) await client.changePrompt(sessionId, promptId, { before: order[0] ?? null });
    await cancel(turn);
  };
  return (
    <section className="queue" aria-label={strings.queue.name}>
      <p className="queue-heading" aria-hidden="true">
        {strings.queue.heading}
      </p>
      <ol>
        {order.map((promptId, place) => (
          <Row
            key={promptId}
            turn={turns[place]!}
            place={place}
            length={order.length}
            onSend={running === null ? null : () => void act(() => sendNow(promptId, running)).then(focusMessage)}
            // Before the message that follows the new place.
            onMove={(step) => void change(promptId, { before: order[step === -1 ? place - 1 : place + 2] ?? null })}
            onChange={(text) => change(promptId, { prompt: text })}
            onRemove={() => void act(() => cancel(promptId)).then(focusMessage)}
          />
        ))}
      </ol>
    </section>
  );
}

interface RowProps {
  turn: Turn;
  place: number;
  length: number;
  /** Stops the running turn, so that this message is next. Null if no turn is running. */
  onSend: (() => void) | null;
  onMove(step: -1 | 1): void;
  /** Resolves to whether it succeeded. */
  onChange(text: string): Promise<boolean>;
  onRemove(): void;
}

function Row({ turn, place, length, onSend, onMove, onChange, onRemove }: RowProps) {
  const [edits, setEdits] = useState(false);
  const words = blocksText(turn.prompt);
  const attachments = turn.prompt.filter(({ type }) => type !== "text").length;
  if (edits) {
    const leave = () => {
      setEdits(false);
      focusMessage();
    };
    return (
      <li>
        <TextForm className="queue-edit" label={strings.queue.message} text={words} save={strings.common.save} onCancel={leave} onSave={(text) => void onChange(text).then((done) => done && leave())} />
      </li>
    );
  }
  return (
    <li className="queued">
      <span className="queue-number" aria-hidden="true">
        {place + 1}
      </span>
      <span className="queue-words" dir="auto" title={words}>
        {words}
      </span>
      {attachments > 0 && <span className="queue-number">{strings.queue.attachments(attachments)}</span>}
      <span className="queue-actions">
        {onSend && (
          <button className="link-button" type="button" title={strings.queue.sendNowTitle} onClick={onSend}>
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
        {words !== "" && attachments === 0 && <Action name={strings.queue.edit} icon="edit" onPress={() => setEdits(true)} />}
        <Action name={strings.queue.remove} icon="close" onPress={onRemove} />
      </span>
    </li>
  );
}

/** A button that moves its row to an end is disabled then, and keeps the focus. */
function Action({ name, icon, disabled = false, onPress }: { name: string; icon: string; disabled?: boolean; onPress(): void }) {
  return (
    <button className="icon-button" type="button" title={name} aria-disabled={disabled || undefined} onClick={() => disabled || onPress()}>
      <Icon name={icon} />
      <span className="hidden">{name}</span>
    </button>
  );
}
