// The time from the agent's write of an event to its painted pixels, at 200 events per second.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";

const RATE = 200;
const SECONDS = 5;
/** The limit of a quiet machine, and the factor that covers a machine with other work. */
const P95_MS = 33;
const NOISE = 3;

const agent = fileURLToPath(new URL("support/timed_agent.mjs", import.meta.url));
const { page, chat } = await oneChat({ config: nodeAgent("timed", agent), agent: /timed/, viewport: { width: 1280, height: 800 } });

test("200 events per second are painted as they arrive", async () => {
  await page.evaluate(() => {
    window.painted = [];
    let shown = 0;
    let changed = [];
    // Each frame sends a message, which arrives after the frame is painted: with all changes before the frame and in it.
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      const now = performance.timeOrigin + performance.now();
      window.painted.push(...changed.map((written) => now - written));
      changed = [];
    };
    const frame = () => {
      channel.port2.postMessage(null);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
    const look = () => {
      const text = [...document.querySelectorAll(".from-agent")].map((part) => part.textContent).join("");
      const times = text.match(/\d{13}\.\d\d(?= )/g) ?? [];
      changed.push(...times.slice(shown).map(Number));
      shown = times.length;
    };
    new MutationObserver(look).observe(document.querySelector("[role=log]"), { subtree: true, childList: true, characterData: true });
  });
  await chat.send(`${RATE} ${SECONDS}`);
  await chat.ended("Finished");
  await page.waitForFunction((all) => window.painted.length >= all, RATE * SECONDS - 1);
  const painted = (await page.evaluate(() => window.painted)).sort((a, b) => a - b);
  const at = (part) => Math.round(painted[Math.floor(painted.length * part)]);
  console.log(`${painted.length} events painted after ${at(0.5)} ms (p50), ${at(0.95)} ms (p95), ${at(0.99)} ms (p99)`);
  assert.ok(at(0.95) <= P95_MS * NOISE, `p95 ${at(0.95)} ms`);
});
