// The end of the stderr of the agent's process, for a person who looks for the reason of a failure.

import { useEffect, useLayoutEffect, useRef, useState } from "react";
import type { GatewayClient } from "@acp-gateway/client";
import { CopyButton } from "./CopyButton";
import { ProblemNote } from "./ProblemNote";

interface Props {
  client: GatewayClient;
  sessionId: string;
  onClose(): void;
}

export function AgentOutput({ client, sessionId, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [output, setOutput] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);

  // The dialog is closed while it is in the page, so that it returns the focus.
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);

  useEffect(() => {
    const stop = new AbortController();
    client.stderr(sessionId, { signal: stop.signal }).then(setOutput, (reason: unknown) => !stop.signal.aborted && setError(reason));
    return () => stop.abort();
  }, [client, sessionId]);

  return (
    <dialog
      className="gate-card dialog agent-output"
      ref={dialog}
      aria-labelledby="agent-output-title"
      // Escape closes the dialog and nothing behind it.
      onKeyDown={(event) => event.stopPropagation()}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <h1 id="agent-output-title">Output of the agent</h1>
      {error !== null && <ProblemNote error={error} />}
      {output === "" && <p>The process has written nothing to stderr, or the session has no process now.</p>}
      {output !== null && output !== "" && <pre tabIndex={0}>{output}</pre>}
      <div className="dialog-actions">
        {output !== null && output !== "" && <CopyButton text={output} />}
        <button className="button" type="button" onClick={onClose}>
          Done
        </button>
      </div>
    </dialog>
  );
}
