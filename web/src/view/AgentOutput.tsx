// The end of the stderr of the agent's process, for a person who looks for the reason of a failure.

import { useEffect, useState } from "react";
import type { GatewayClient } from "@acp-gateway/client";
import { strings } from "../strings";
import { CopyButton } from "./CopyButton";
import { Dialog } from "./Dialog";
import { ProblemNote } from "./ProblemNote";

interface Props {
  client: GatewayClient;
  sessionId: string;
  onClose(): void;
}

export function AgentOutput({ client, sessionId, onClose }: Props) {
  const [output, setOutput] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    const stop = new AbortController();
    client.stderr(sessionId, { signal: stop.signal }).then(setOutput, (reason: unknown) => !stop.signal.aborted && setError(reason));
    return () => stop.abort();
  }, [client, sessionId]);

  return (
    <Dialog title={strings.common.outputOfAgent} className="agent-output" onClose={onClose}>
      {error !== null && <ProblemNote error={error} />}
      {output === "" && <p>{strings.agents.noOutput}</p>}
      {output !== null && output !== "" && <pre tabIndex={0}>{output}</pre>}
      <div className="dialog-actions">
        {output !== null && output !== "" && <CopyButton text={output} />}
        <button className="button" type="button" onClick={onClose}>
          {strings.common.done}
        </button>
      </div>
    </Dialog>
  );
}
