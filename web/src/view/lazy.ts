// Parts of the page that are rarely needed are loaded when they are.

import { useEffect, useState } from "react";

export type Part<T> = { state: "loading" } | { state: "here"; part: T } | { state: "failed" };

/** After an upgrade of the gateway an open page may ask for a part that is not there any more. */
export function usePart<T>(load: () => Promise<T>): Part<T> {
  const [part, setPart] = useState<Part<T>>({ state: "loading" });
  useEffect(() => {
    let wanted = true;
    load().then(
      (loaded) => wanted && setPart({ state: "here", part: loaded }),
      () => wanted && setPart({ state: "failed" }),
    );
    return () => {
      wanted = false;
    };
  }, [load]);
  return part;
}
