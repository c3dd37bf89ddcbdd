// A piece of a long turn. Away from the visible area it is one element with the height and the words of its parts, so that the
// scrollbar stays and the browser's search finds the words.

import { useEffect, useLayoutEffect, useRef, type ReactNode } from "react";
import { itemText } from "../model/itemText";
import type { Item } from "@acp-gateway/client";
import { useNear } from "./near";

/** The height of a part that was never mounted. */
const ESTIMATED_PX = 48;

interface Props {
  items: readonly Item[];
  /** The end of a turn is shown first. */
  isLast: boolean;
  /** A short turn is one chunk, which stays mounted, so that screen readers have all of it. */
  isOnly: boolean;
  children: ReactNode;
}

export function ItemChunk({ items, isLast, isOnly, children }: Props) {
  const place = useRef<HTMLDivElement>(null);
  // A part that was opened stays open.
  const used = useRef(false);
  const use = () => void (used.current = true);
  const only = useRef(isOnly);
  only.current = isOnly;
  const [near, height, show] = useNear(place, isLast, () => only.current || used.current || isInUse(place.current));
  return (
    <div className="chunk" ref={place} onClickCapture={use} onKeyDownCapture={use}>
      {near ? children : <Words items={items} height={height ?? items.length * ESTIMATED_PX} onFound={show} />}
    </div>
  );
}

/** Whether the selection or the focus is in this part of the document. */
function isInUse(part: HTMLElement | null): boolean {
  if (!part) return false;
  const selection = document.getSelection();
  return part.contains(document.activeElement) || (selection !== null && !selection.isCollapsed && selection.containsNode(part, true));
}

function Words({ items, height, onFound }: { items: readonly Item[]; height: number; onFound(): void }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => place.current?.setAttribute("hidden", "until-found"), []);
  useEffect(() => {
    const element = place.current;
    const found = () => {
      element?.scrollIntoView({ block: "center" });
      onFound();
    };
    element?.addEventListener("beforematch", found);
    return () => element?.removeEventListener("beforematch", found);
  });
  return (
    <div ref={place} style={{ height }}>
      {items.map(itemText).join("\n")}
    </div>
  );
}
