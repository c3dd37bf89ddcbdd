// Reloads a resource of the API periodically while the page is visible.

import { useCallback, useEffect, useState } from "react";

export interface Reloaded {
  error: unknown;
  setError(error: unknown): void;
  /** Loads the resource again now. */
  refresh(): void;
}

/** Calls `load` at once and every `everyMs` milliseconds. `store` gets each result. Both must be stable. */
export function useReload<T>(
  everyMs: number,
  load: (signal: AbortSignal) => Promise<T>,
  store: (result: T) => void,
): Reloaded {
  const [error, setError] = useState<unknown>(null);
  const [asked, setAsked] = useState(0);
  const refresh = useCallback(() => setAsked((before) => before + 1), []);

  useEffect(() => {
    const stop = new AbortController();
    load(stop.signal).then(
      (result) => {
        store(result);
        setError(null);
      },
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
  }, [load, store, asked]);

  useEffect(() => {
    const timer = setInterval(() => !document.hidden && refresh(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, refresh]);

  return { error, setError, refresh };
}
