// Loads the part that shows formulas if a message may contain one.

import { useEffect, useState } from "react";
import type { Maths } from "../maths/maths";

/** Matches every message with a formula. Most prices and variables of a shell do not match. */
export const MAY_HAVE_MATHS = /\$\$|\\[([]|\$[^\s$](?:[^$\n]*[^\s$])?\$(?!\d)/;

let loaded: Maths | null = null;

/** Null as long as the message needs no formulas or the part is not there. */
export function useMaths(text: string): Maths | null {
  const [maths, setMaths] = useState(loaded);
  const wanted = MAY_HAVE_MATHS.test(text);
  const missing = wanted && maths === null;
  useEffect(() => {
    if (!missing) return;
    let mounted = true;
    import("../maths/maths").then(
      (part) => {
        loaded = part.maths;
        if (mounted) setMaths(loaded);
      },
      // After an upgrade of the gateway the part may be gone. The source stays.
      () => {},
    );
    return () => void (mounted = false);
  }, [missing]);
  return wanted ? maths : null;
}
