// The worker: gets code, and answers with its words. A text can keep it busy for minutes, so the page ends it at a deadline.

import { highlighted, type Word } from "./words";

export interface Task {
  language: string;
  text: string;
}

/** Null if the language is unknown or the code is too deeply nested. */
export type Answer = Word[] | null;

addEventListener("message", ({ data }: MessageEvent<Task>) => postMessage(answer(data)));

function answer({ language, text }: Task): Answer {
  try {
    return highlighted(language, text);
  } catch {
    return null;
  }
}
