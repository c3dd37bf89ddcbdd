// The actions on the queue of a session.

import { useMemo } from "react";
import { type GatewayClient, runningTurn, type SessionLog } from "@acp-gateway/client";
import type { Act } from "./act";
import { focusMessage } from "./focus";
import type { QueueActions } from "./QueuedEnd";

/** `act` must be stable. */
export function useQueue(client: GatewayClient, sessionId: string, log: SessionLog, act: Act): QueueActions {
  const running = runningTurn(log)?.promptId ?? null;
  const queued = log.turns.flatMap((turn) => (turn.status === "queued" && turn.promptId !== null ? [turn.promptId] : [])).join(" ");
  return useMemo(() => {
    const order = queued === "" ? [] : queued.split(" ");
    const cancel = (promptId: string) => act(() => client.cancelPrompt(sessionId, promptId));
    return {
      order,
      sendNow: running === null ? null : () => void cancel(running).then(focusMessage),
      change: (promptId, text) => act(() => client.changePrompt(sessionId, promptId, { prompt: text })),
      move: (promptId, step) => {
        const place = order.indexOf(promptId);
        // Before the one that follows the new place.
        const before = order[step === -1 ? place - 1 : place + 2] ?? null;
        void act(() => client.changePrompt(sessionId, promptId, { before }));
      },
      remove: (promptId) => void cancel(promptId).then(focusMessage),
    };
  }, [client, sessionId, running, queued, act]);
}
