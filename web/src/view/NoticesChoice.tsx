// Turns the notifications of the browser on and off.

import { useState, useSyncExternalStore } from "react";
import { hasNotices, noticesAreOn, noticesChoice, turnOnNotices } from "../model/notices";
import { strings } from "../strings";

export function NoticesChoice() {
  const on = useSyncExternalStore(noticesChoice.subscribe, noticesAreOn);
  const [blocked, setBlocked] = useState(false);
  if (!hasNotices()) return null;
  const turn = async () => {
    if (on) noticesChoice.choose("off");
    else setBlocked(!(await turnOnNotices()));
  };
  return (
    <button className="link-button" type="button" aria-pressed={on} onClick={() => void turn()}>
      {blocked ? strings.sidebar.noticesBlocked : on ? strings.sidebar.noticesOn : strings.sidebar.noticesOff}
    </button>
  );
}
