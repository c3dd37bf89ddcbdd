// Tells parts of a scrolled list whether they are near the visible area.

import { createContext, useContext, useEffect, useState, type RefObject } from "react";
import { flushSync } from "react-dom";

/** Parts within this distance above and below the visible area are near. */
const MARGIN = "1000px 0px";

type Report = (near: boolean, height: number) => void;

/** The parts of one scroller. While the page is printed, all parts are near. */
export class Nearness {
  readonly #root: () => Element | null;
  readonly #parts = new Map<Element, Report>();
  #observer: IntersectionObserver | null = null;

  constructor(root: () => Element | null) {
    this.#root = root;
  }

  /** Reports until the returned function is called. */
  observe(part: Element, report: Report): () => void {
    this.#observer ??= new IntersectionObserver((entries) => this.#changed(entries), { root: this.#root(), rootMargin: MARGIN });
    this.#parts.set(part, report);
    this.#observer.observe(part);
    return () => {
      this.#parts.delete(part);
      this.#observer?.unobserve(part);
    };
  }

  /** Mounts all parts for a print, and returns to the visible area after it. */
  followPrints(): () => void {
    const before = () => flushSync(() => this.#parts.forEach((report) => report(true, 0)));
    const after = () =>
      this.#parts.forEach((_, part) => {
        this.#observer?.unobserve(part);
        this.#observer?.observe(part);
      });
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    return () => {
      removeEventListener("beforeprint", before);
      removeEventListener("afterprint", after);
    };
  }

  #changed(entries: IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting, boundingClientRect } of entries) this.#parts.get(target)?.(isIntersecting, boundingClientRect.height);
  }
}

export const NearnessContext = createContext<Nearness | null>(null);

/** Whether a part is near, and its last height while it was. `stays` keeps a part that a person uses. */
export function useNear(part: RefObject<HTMLElement | null>, initially: boolean, stays: () => boolean): [near: boolean, height: number | null, show: () => void] {
  const nearness = useContext(NearnessContext);
  const [state, setState] = useState<{ near: boolean; height: number | null }>({ near: initially, height: null });
  useEffect(() => {
    if (!nearness || !part.current) return;
    return nearness.observe(part.current, (near, height) => {
      setState((before) => {
        if (near === before.near || (!near && stays())) return before;
        return { near, height: near ? before.height : height };
      });
    });
    // The first `stays` remains right: it reads only refs and the document.
  }, [nearness, part]);
  return [state.near, state.height, () => setState((before) => ({ ...before, near: true }))];
}
