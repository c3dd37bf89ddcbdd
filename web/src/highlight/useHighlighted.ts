// The words of a code block with their kinds. While a message arrives, the end of its code is plain for a moment.

import { useEffect, useRef, useState } from "react";
import { highlighter } from "./page";
import type { Word } from "./words";

/** The page does not highlight longer code. */
const MAX_LENGTH = 20_000;
/** The shortest time between two passes over the code of a message that arrives. */
const INTERVAL_MS = 200;

interface Pass {
  language: string;
  text: string;
  words: Word[];
}

export function useHighlighted(language: string, text: string): Word[] {
  const [pass, setPass] = useState<Pass | null>(null);
  const unmounted = useRef<AbortSignal>(null);
  const progress = useRef({ running: false, plain: false, next: 0 });
  useEffect(() => {
    const abort = new AbortController();
    unmounted.current = abort.signal;
    return () => abort.abort();
  }, []);
  // Runs again after each pass, because the text may have grown meanwhile.
  useEffect(() => {
    const { running, plain, next } = progress.current;
    const isDone = pass?.language === language && pass.text === text;
    if (language === "" || text.length > MAX_LENGTH || isDone || running || plain) return;
    const timer = setTimeout(async () => {
      progress.current = { running: true, plain: false, next: performance.now() + INTERVAL_MS };
      const signal = unmounted.current!;
      const words = await highlighter.highlight({ language, text }, signal);
      progress.current.running = false;
      progress.current.plain = words === null;
      if (words && !signal.aborted) setPass({ language, text, words });
    }, next - performance.now());
    return () => clearTimeout(timer);
  }, [language, text, pass]);
  if (pass?.language !== language || !text.startsWith(pass.text)) return [{ text, kind: "" }];
  return [...pass.words, { text: text.slice(pass.text.length), kind: "" }];
}
