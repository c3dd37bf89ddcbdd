// The reconnects of a session, for parts that load something beside its log.

import { createContext, useEffect, useState } from "react";
import type { Connection } from "@acp-gateway/client";

/** The number of times that the connection became live. */
export const Reached = createContext(0);

export function useReached({ state }: Connection): number {
  const [times, setTimes] = useState(0);
  useEffect(() => {
    if (state === "live") setTimes((before) => before + 1);
  }, [state]);
  return times;
}
