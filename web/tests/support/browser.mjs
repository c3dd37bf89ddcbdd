// A real browser, and pages that notice everything that a good page never does.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { chromium } from "playwright-core";

const FLAGS = [
  ...["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
  ...["--disable-component-update", "--disable-sync"],
];

/** `flags`: further flags of the browser. */
export function launch(flags = []) {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: [...FLAGS, ...flags] });
}

/** What the browser itself writes when a request is refused or cannot be made; some tests bring that about. */
const FAILED_REQUEST = /^Failed to load resource/;

export class Watch {
  /** `allowFailedRequests`: the test stops the gateway or removes the key. */
  static async page(browser, origin, { allowFailedRequests = false, ...options } = {}) {
    const context = await browser.newContext(options);
    const watch = new Watch(context, origin, allowFailedRequests);
    watch.page = await watch.newPage();
    return watch;
  }

  constructor(context, origin, allowFailedRequests) {
    this.context = context;
    this.origin = origin;
    this.allowFailedRequests = allowFailedRequests;
    this.seen = [];
  }

  async newPage() {
    const page = await this.context.newPage();
    page.setDefaultTimeout(20_000);
    page.on("dialog", (dialog) => {
      this.seen.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("pageerror", (error) => this.seen.push(`error: ${error.stack ?? error}`));
    page.on("console", (message) => {
      if (!["error", "warning"].includes(message.type())) return;
      if (this.allowFailedRequests && FAILED_REQUEST.test(message.text())) return;
      this.seen.push(`console: ${message.text()} ${message.location().url}`);
    });
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.origin !== this.origin && !["data:", "blob:"].includes(url.protocol)) this.seen.push(`request: ${url.href}`);
    });
    await page.exposeFunction("reportViolation", (words) => this.seen.push(`policy: ${words}`));
    await page.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) => {
        window.reportViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
      });
    });
    return page;
  }

  /** Ends the test's pages; anything that was seen fails the test. */
  async close() {
    await this.context.close();
    assert.deepEqual(this.seen, []);
  }
}

/** The rules of WCAG that a machine can check. */
export async function checkAccessibility(page) {
  const source = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  await page.evaluate(source);
  // The colours in the middle of a transition are not those of the page.
  await page.evaluate(() => Promise.allSettled(document.getAnimations().filter((one) => one instanceof CSSTransition).map((one) => one.finished)));
  const found = await page.evaluate(async () => {
    const result = await window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] });
    return result.violations.map((violation) => `${violation.id}: ${violation.nodes.map((node) => node.html).join(" | ")}`);
  });
  assert.deepEqual(found, []);
}

export async function screenshot(page, name) {
  const folder = process.env.ACP_GATEWAY_SCREENSHOTS;
  if (folder) await page.screenshot({ path: path.join(folder, `${name}.png`) });
}

/** Pictures of both themes, and of a phone. Checks the accessibility of each theme. */
export async function pictures(page, name) {
  const { width, height } = page.viewportSize();
  for (const theme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
    await checkAccessibility(page);
    await screenshot(page, `${name}-${theme}`);
    await page.setViewportSize({ width: 390, height: 844 });
    await screenshot(page, `${name}-phone-${theme}`);
    await page.setViewportSize({ width, height });
  }
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
}
