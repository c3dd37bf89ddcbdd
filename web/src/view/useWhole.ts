// The whole conversation, for the search and for the print of the browser, which know only what is on the page.

import { useEffect, useRef, useState } from "react";
import type { FeedState, SessionFeed } from "@acp-gateway/client";

/**
 * Whether all turns are to be shown: after the keys of the search or of the print. The earlier part of the log is then read, and the
 * print waits for it.
 */
export function useWhole(feed: SessionFeed, { caughtUp, log }: FeedState): boolean {
  /** The number of keys that asked for it. */
  const [asked, setAsked] = useState(0);
  const prints = useRef(false);
  const lacks = log.start > 0;

  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.altKey || event.shiftKey || !(event.ctrlKey || event.metaKey)) return;
      if (event.key !== "f" && event.key !== "p") return;
      if (event.key === "p" && lacks) {
        event.preventDefault();
        prints.current = true;
      }
      setAsked((before) => before + 1);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [lacks]);

  useEffect(() => {
    if (asked === 0 || !caughtUp) return;
    let left = false;
    const print = () => {
      if (left) return;
      if (prints.current) window.print();
      prints.current = false;
    };
    // A print without the earlier part says so.
    void feed.loadEarlier(true).then(() => requestAnimationFrame(print), print);
    // A person who leaves the session meanwhile prints nothing.
    return () => void (left = true);
  }, [feed, asked, caughtUp]);
  return asked > 0;
}
