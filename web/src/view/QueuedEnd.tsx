// The end of a turn that waits in the queue, with what a person can do about it.

import { createContext, useContext, useState } from "react";
import { blocksText, type Turn } from "@acp-gateway/client";
import { strings } from "../strings";
import { focusMessage } from "./focus";
import { Icon } from "./Icon";
import { TextForm } from "./TextForm";

export interface QueueActions {
  /** The queued turns, in their order. */
  order: string[];
  /** Stops the running turn, so that the next one begins. Null if no turn is running. */
  sendNow: (() => void) | null;
  /** Replaces the text of a message. Resolves to whether it succeeded. */
  change(promptId: string, text: string): Promise<boolean>;
  /** Moves a message by one place. */
  move(promptId: string, step: -1 | 1): void;
  remove(promptId: string): void;
}

/** Null for a reader that cannot change the queue. */
export const Queue = createContext<QueueActions | null>(null);

export function QueuedEnd({ turn }: { turn: Turn }) {
  const queue = useContext(Queue);
  const [edits, setEdits] = useState(false);
  const { promptId } = turn;
  // A message with pictures or files keeps them, so only a text alone is edited here.
  const words = turn.prompt.every((block) => block.type === "text") ? blocksText(turn.prompt) : "";
  if (!queue || promptId === null) return <p className="turn-end">{strings.transcript.queueWaits}</p>;
  if (edits) {
    return (
      <TextForm
        className="queue-edit"
        label={strings.transcript.queuedMessage}
        text={words}
        save={strings.common.save}
        onCancel={() => {
          setEdits(false);
          focusMessage();
        }}
        onSave={(text) => void queue.change(promptId, text).then((done) => {
          if (!done) return;
          setEdits(false);
          focusMessage();
        })}
      />
    );
  }
  const place = queue.order.indexOf(promptId);
  return (
    <div className="turn-foot">
      <p className="turn-end">
        <Icon name="clock" /> {queue.order.length > 1 ? strings.transcript.queuedNumber(place + 1) : strings.transcript.queued}
      </p>
      <div className="queue-actions" role="group" aria-label={strings.transcript.queuedMessage}>
        {queue.sendNow && place === 0 && (
          <button className="link-button" type="button" onClick={queue.sendNow}>
            {strings.transcript.sendNow}
          </button>
        )}
        {queue.order.length > 1 && (
          <>
            <button className="icon-button" type="button" title={strings.transcript.sendEarlier} disabled={place <= 0} onClick={() => queue.move(promptId, -1)}>
              <Icon name="up" />
              <span className="hidden">{strings.transcript.sendEarlier}</span>
            </button>
            <button className="icon-button" type="button" title={strings.transcript.sendLater} disabled={place === queue.order.length - 1} onClick={() => queue.move(promptId, 1)}>
              <Icon name="down" />
              <span className="hidden">{strings.transcript.sendLater}</span>
            </button>
          </>
        )}
        {words !== "" && (
          <button className="link-button" type="button" onClick={() => setEdits(true)}>
            {strings.transcript.edit}
          </button>
        )}
        <button className="link-button" type="button" onClick={() => queue.remove(promptId)}>
          {strings.transcript.remove}
        </button>
      </div>
    </div>
  );
}
