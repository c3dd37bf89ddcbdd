// The actions on the queue of a session.

import { useMemo } from "react";
import { type GatewayClient, runningTurn, type SessionLog } from "@acp-gateway/client";
import { focusMessage } from "./focus";
import type { QueueActions } from "./QueuedEnd";
import type { Act } from "./act";

/** `act` and `rewrite` must be stable. */
export function useQueue(client: GatewayClient, sessionId: string, log: SessionLog, act: Act, rewrite: (text: string) => void): QueueActions {
  const running = runningTurn(log)?.promptId ?? null;
  const next = log.turns.find((turn) => turn.status === "queued")?.promptId ?? null;
  return useMemo(() => {
    const cancel = (promptId: string) => act(() => client.cancelPrompt(sessionId, promptId));
    return {
      next,
      sendNow: running === null ? null : () => void cancel(running).then(focusMessage),
      edit: (promptId, text) => void cancel(promptId).then((done) => done && rewrite(text)),
      remove: (promptId) => void cancel(promptId).then(focusMessage),
    };
  }, [client, sessionId, running, next, act, rewrite]);
}
