// Shows a lost connection to the gateway and the time of the next attempt.

import { useEffect, useState } from "react";
import type { Connection } from "@acp-gateway/client";
import { strings } from "../strings";
import { Icon } from "./Icon";
import { useNow } from "./now";

/** An immediate reconnect is not shown. */
const GRACE_MS = 400;

export function ConnectionBanner({ connection, onRetry }: { connection: Connection; onRetry(): void }) {
  const lost = useLoss(connection);
  const seconds = useCountdown(connection.state === "lost" ? connection.retryAt : null);
  return (
    <div className="banner-place" role="status">
      {lost && (
        <div className="banner">
          <Icon name="warning" />
          <span>{lost}</span>
          {connection.state === "lost" ? (
            <>
              {/* The ticking number would be read out every second. */}
              <span aria-hidden="true">{strings.session.retry(seconds)}</span>
              <button className="button small" type="button" onClick={onRetry}>
                {strings.session.tryNow}
              </button>
            </>
          ) : (
            <span>{strings.session.connecting}</span>
          )}
        </div>
      )}
    </div>
  );
}

/** The reason stays up while the next try runs, until the stream is live again. */
function useLoss(connection: Connection): string | null {
  const [reason, setReason] = useState<string | null>(null);
  const current = connection.state === "lost" ? connection.reason : null;
  const over = connection.state !== "lost" && connection.state !== "connecting";
  useEffect(() => {
    if (over) return setReason(null);
    if (current === null) return;
    const timer = setTimeout(() => setReason(current), GRACE_MS);
    return () => clearTimeout(timer);
  }, [current, over]);
  return reason;
}

function useCountdown(until: number | null): number {
  const now = useNow(until === null ? null : 250);
  return until === null ? 0 : Math.max(0, Math.ceil((until - now) / 1000));
}
