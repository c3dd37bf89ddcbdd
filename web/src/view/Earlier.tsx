// The beginning of a conversation whose earlier part is not shown. The part is shown when a reader comes near.

import { useEffect, useRef } from "react";
import type { FeedState } from "@acp-gateway/client";
import { strings } from "../strings";

/** Within this distance above the visible area, the reader is near. */
const MARGIN = "1500px 0px 0px";

interface Props {
  state: FeedState["earlier"];
  /** Another beginning has another name. */
  beginning: string;
  onShow(): void;
}

export function Earlier({ state, beginning, onShow }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const show = useRef(onShow);
  useEffect(() => {
    show.current = onShow;
  });
  // A new observer reports whether the new beginning is near too.
  useEffect(() => {
    if (state !== "idle" || !place.current) return;
    const root = place.current.closest(".transcript");
    const watch = new IntersectionObserver(([entry]) => entry?.isIntersecting && show.current(), { root, rootMargin: MARGIN });
    watch.observe(place.current);
    return () => watch.disconnect();
  }, [state, beginning]);
  return (
    <div className="earlier" ref={place}>
      {state === "loading" ? (
        <>
          <span className="spinner" aria-hidden="true" /> {strings.transcript.loadingEarlier}
        </>
      ) : (
        <>
          {state === "failed" && strings.transcript.earlierFailed}
          <button className="button small" type="button" onClick={onShow}>
            {state === "failed" ? strings.common.tryAgain : strings.transcript.showEarlier}
          </button>
        </>
      )}
    </div>
  );
}
