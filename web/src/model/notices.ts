// Notifications of the browser: a session asks for an answer, or its turn has ended.

import { useEffect, useRef } from "react";
import { known, type SessionSummary as Session } from "@acp-gateway/client";
import { lookup, visible } from "@acp-gateway/client/read";
import { strings } from "../strings";
import { scriptAddress } from "../scripts";
import { Choice } from "./choice";
import { sessionHref } from "./route";

export const noticesChoice = new Choice<"off" | "on">("notices", ["off", "on"]);

/** Pages without a secure context have no notifications. */
export const hasNotices = () => "Notification" in globalThis && isSecureContext;

export function noticesAreOn(): boolean {
  return noticesChoice.value() === "on" && hasNotices() && Notification.permission === "granted";
}

/** Asks the browser for the permission. Returns whether there will be notifications. */
export async function turnOnNotices(): Promise<boolean> {
  const granted = (await Notification.requestPermission()) === "granted";
  noticesChoice.choose(granted ? "on" : "off");
  return granted;
}

/** What has happened between two states of a session, or null. */
export function noticeOf(before: Session | undefined, now: Session): string | null {
  if (!before || before.lastActivityAt === now.lastActivityAt) return null;
  if (known(now.state) === "waiting") return known(before.state) === "waiting" ? null : strings.sidebar.noticeWaiting;
  if (known(now.state) !== "idle") return null;
  return lookup(strings.sidebar.noticeEnds, now.lastOutcome) ?? null;
}

/** Shows a notification for each change that a person does not see on this page. */
export function useNotices(sessions: Session[] | null): void {
  const before = useRef<Session[] | null>(null);
  useEffect(() => {
    const known = new Map(before.current?.map((session) => [session.sessionId, session]));
    before.current = sessions;
    if (!sessions || !noticesAreOn() || (!document.hidden && document.hasFocus())) return;
    for (const session of sessions) {
      const words = noticeOf(known.get(session.sessionId), session);
      if (words !== null) show(session, words);
    }
  }, [sessions]);
}

/** The tabs of a browser show one notification, because its tag is the session. */
function show({ sessionId, title, agent }: Session, words: string): void {
  const name = visible(title ?? agent);
  const options = { body: `${words} · ${agent}`, tag: sessionId };
  try {
    const notice = new Notification(name, options);
    notice.onclick = () => {
      focus();
      location.hash = sessionHref(sessionId);
      notice.close();
    };
  } catch {
    // Phones show notifications only through a service worker.
    // A system without notifications refuses them. The list of sessions marks the session anyway.
    showByWorker(name, { ...options, data: new URL(sessionHref(sessionId), document.baseURI).href }).catch(() => undefined);
  }
}

async function showByWorker(name: string, options: NotificationOptions): Promise<void> {
  const { serviceWorker } = navigator;
  await serviceWorker.register(scriptAddress("notices"));
  const registration = await serviceWorker.ready;
  serviceWorker.onmessage = ({ data }: MessageEvent<{ open?: unknown }>) => {
    if (typeof data.open === "string") location.hash = new URL(data.open).hash;
  };
  await registration.showNotification(name, options);
}
