// The end of a turn that waits in the queue, with what a person can do about it.

import { createContext, useContext } from "react";
import { blocksText, type Turn } from "@acp-gateway/client";

export interface QueueActions {
  /** The turn that begins after the running one. */
  next: string | null;
  /** Stops the running turn, so that the next one begins. Null if no turn is running. */
  sendNow: (() => void) | null;
  /** Takes the message out of the queue, back into the message field. */
  edit(promptId: string, text: string): void;
  remove(promptId: string): void;
}

/** Null for a reader that cannot change the queue. */
export const Queue = createContext<QueueActions | null>(null);

export function QueuedEnd({ turn }: { turn: Turn }) {
  const queue = useContext(Queue);
  const { promptId } = turn;
  const words = blocksText(turn.prompt);
  return (
    <div className="turn-foot">
      <p className="turn-end">Waiting in the queue</p>
      {queue && promptId !== null && (
        <div className="queue-actions" role="group" aria-label="Queued message">
          {queue.sendNow && queue.next === promptId && (
            <button className="link-button" type="button" onClick={queue.sendNow}>
              Stop and send now
            </button>
          )}
          {words !== "" && (
            <button className="link-button" type="button" onClick={() => queue.edit(promptId, words)}>
              Edit
            </button>
          )}
          <button className="link-button" type="button" onClick={() => queue.remove(promptId)}>
            Remove
          </button>
        </div>
      )}
    </div>
  );
}
