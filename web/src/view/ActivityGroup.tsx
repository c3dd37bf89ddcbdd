// Consecutive tool calls. While they run each is visible; when the agent goes on, one line that opens to them remains.

import { useEffect, useLayoutEffect, useRef, useState, type ReactNode } from "react";
import { summary, type Activity } from "../model/activity";
import { Icon } from "./Icon";

export function ActivityGroup({ activity, children }: { activity: Activity; children: ReactNode }) {
  const [choice, setChoice] = useState<boolean | null>(null);
  // Calls that a person opened before the line appeared stay visible.
  const [used, setUsed] = useState(false);
  const calls = useRef<HTMLDivElement>(null);
  const isLine = activity.isOver && activity.calls.length > 1;
  const open = !isLine || (choice ?? used);

  // The browser's search finds the words of closed lines, and opens them.
  useLayoutEffect(() => {
    if (open) calls.current?.removeAttribute("hidden");
    else calls.current?.setAttribute("hidden", "until-found");
  }, [open]);
  useEffect(() => {
    const element = calls.current;
    const found = () => setChoice(true);
    element?.addEventListener("beforematch", found);
    return () => element?.removeEventListener("beforematch", found);
  }, []);

  return (
    <div className="activity">
      {isLine && (
        <button className="activity-head" type="button" aria-expanded={open} onClick={() => setChoice(!open)}>
          <Icon name="chevron" className="chevron" />
          <span>{summary(activity.calls)}</span>
        </button>
      )}
      <div className={isLine ? "activity-calls activity-folded" : "activity-calls"} ref={calls} onClickCapture={() => setUsed(true)}>
        {children}
      </div>
    </div>
  );
}
