// The current time, for texts that become older while a person looks at them.

import { useCallback, useSyncExternalStore } from "react";

export const SECOND_MS = 1_000;
/** For texts in minutes, and for groups of days. */
export const MINUTE_STEP_MS = 10_000;
export const GROUP_STEP_MS = 60_000;

/** The time in ms since 1970, rounded down to the step, and rendered again in each step. Null: no time is shown. */
export function useNow(step: number | null): number {
  const subscribe = useCallback(
    (onChange: () => void) => {
      if (step === null) return () => undefined;
      const timer = setInterval(onChange, step);
      return () => clearInterval(timer);
    },
    [step],
  );
  return useSyncExternalStore(subscribe, () => (step === null ? 0 : Math.floor(Date.now() / step) * step));
}
