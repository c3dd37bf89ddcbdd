// An ACP agent that writes chunks at a steady rate. Each chunk has the time at which it was written, in milliseconds.

import { setTimeout as sleep } from "node:timers/promises";
import { serve } from "./prompted_agent.mjs";

/** The prompt has the number of events per second, and the seconds. */
async function* timed(text) {
  const [rate, seconds] = text.split(" ").map(Number);
  const began = performance.now();
  for (let at = 0; at < rate * seconds; at += 1) {
    const due = began + (at * 1000) / rate;
    if (performance.now() < due) await sleep(due - performance.now());
    const now = (performance.timeOrigin + performance.now()).toFixed(2);
    yield { sessionUpdate: "agent_message_chunk", content: { type: "text", text: `${now} ` } };
  }
}

serve("timed", timed);
