// Keeps what a reader sees where it is while earlier turns are added above it. The parts below can change their height too: parts
// that the end of a log had on its own join those before them.

import { Component, type ReactNode, type RefObject } from "react";

interface Props {
  scroller: RefObject<HTMLElement | null>;
  /** Another beginning has another name. */
  beginning: string;
  /** Whether the reader is not at the end, to which the conversation moves by itself. */
  reads(): boolean;
  children: ReactNode;
}

/** Elements in view with their places. */
type Places = [element: Element, top: number][];

/** The heights at which elements are looked for, as parts of the visible area. */
const HEIGHTS = [0.5, 0.7, 0.3, 0.9, 0.1];

/** The parts around the place are mounted after it is found, and get their heights then. */
const SETTLE_MS = 500;

/** A class, because only a class is called before the document changes. */
export class KeepPlace extends Component<Props, object, Places | null> {
  #settle: (() => void) | null = null;

  override getSnapshotBeforeUpdate(before: Readonly<Props>): Places | null {
    const { beginning, scroller, reads } = this.props;
    return before.beginning === beginning || !scroller.current || !reads() ? null : placesIn(scroller.current);
  }

  override componentDidUpdate(_props: Readonly<Props>, _state: object, places: Places | null): void {
    const box = this.props.scroller.current;
    const kept = places?.find(([element]) => element.isConnected);
    if (!box || !kept) return;
    this.#settle?.();
    this.#settle = keep(box, ...kept);
  }

  override componentWillUnmount(): void {
    this.#settle?.();
  }

  override render(): ReactNode {
    return this.props.children;
  }
}

/** Keeps the element at its place until the parts around it have their heights. Returns the function that ends it. */
function keep(box: HTMLElement, element: Element, top: number): () => void {
  const place = () => element.getBoundingClientRect().top;
  const restore = () => {
    if (element.isConnected) box.scrollTop += place() - top;
  };
  const scrolled = () => (top = place());
  const watch = new ResizeObserver(restore);
  const end = () => {
    clearTimeout(timer);
    watch.disconnect();
    box.removeEventListener("scroll", scrolled);
  };
  const timer = setTimeout(end, SETTLE_MS);
  restore();
  if (box.firstElementChild) watch.observe(box.firstElementChild);
  box.addEventListener("scroll", scrolled);
  return end;
}

function placesIn(box: HTMLElement): Places {
  const { left, top, width, height } = box.getBoundingClientRect();
  return HEIGHTS.flatMap((part): Places => {
    const element = document.elementFromPoint(left + width / 2, top + height * part);
    return element?.closest(".message, .tool, .activity, .thought") ? [[element, element.getBoundingClientRect().top]] : [];
  });
}
