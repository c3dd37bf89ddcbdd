// Closes a sheet on a phone that a finger pulls down by its head.

import { useEffect, type RefObject } from "react";

/** A shorter pull returns the sheet to its place. */
const AWAY_PX = 90;

export function useSwipeAway(sheet: RefObject<HTMLElement | null>, head: RefObject<HTMLElement | null>, onAway: () => void): void {
  useEffect(() => {
    const [box, handle] = [sheet.current, head.current];
    if (!box || !handle) return;
    let from: number | null = null;
    const pulled = (event: PointerEvent) => (from === null ? 0 : Math.max(0, event.clientY - from));
    const down = (event: PointerEvent) => {
      // Elsewhere the panel is beside the conversation.
      if (event.pointerType === "touch" && matchMedia("(max-width: 700px)").matches) from = event.clientY;
    };
    const move = (event: PointerEvent) => {
      if (from !== null) box.style.transform = `translateY(${pulled(event)}px)`;
    };
    const end = (event: PointerEvent) => {
      const away = event.type === "pointerup" && pulled(event) > AWAY_PX;
      if (from !== null) box.style.transform = "";
      from = null;
      if (away) onAway();
    };
    handle.addEventListener("pointerdown", down);
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
    return () => {
      handle.removeEventListener("pointerdown", down);
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
    };
  }, [sheet, head, onAway]);
}
