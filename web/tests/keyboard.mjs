// The work with an agent without a pointer, at each width and in both themes.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { checkAccessibility, Watch } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";

const agent = fileURLToPath(new URL("support/fixing_agent.mjs", import.meta.url));
const { page: first, gateway, link } = await oneChat({ config: nodeAgent("fixer", agent), agent: /fixer/ });

for (const width of [390, 1280, 1920]) {
  for (const colorScheme of ["light", "dark"]) {
    test(`a session is started, answered, stopped and found by keys: ${width} px, ${colorScheme}`, async () => {
      const watch = await Watch.page(first.context().browser(), gateway.origin, { viewport: { width, height: 844 }, colorScheme, reducedMotion: "reduce" });
      const { page } = watch;
      const chat = new Chat(page);
      const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
      const focusedIn = (selector) => page.evaluate((selector) => document.activeElement.closest(selector) !== null, selector);
      await page.goto(link);
      await page.getByRole("button", { name: /^Agent: ./ }).waitFor();
      await page.keyboard.type(`Fix the test ${width} ${colorScheme}`);
      await press("Enter");
      await page.waitForURL(/#\/s\/[0-9a-f-]+$/);
      await page.locator(".permission").waitFor({ state: "attached" });
      for (let tabs = 0; !(await focusedIn(".permission")); tabs += 1) {
        assert.ok(tabs < 12, "Shift+Tab leads to the question");
        // On a narrow page, the question is small while the focus is in the message field.
        await press(...((await focusedIn('.requests-toggle[aria-expanded="false"]')) ? ["Enter", "Tab"] : ["Shift+Tab"]));
      }
      await checkAccessibility(page);
      await chat.permission.getByRole("button", { name: "Allow once" }).and(page.locator('[aria-disabled="false"]')).waitFor();
      await press("1");
      await chat.ended("Finished");
      await page.waitForFunction(() => document.activeElement?.id === "message");
      await page.keyboard.type("Fix it again");
      await press("Enter");
      await page.locator(".permission").waitFor({ state: "attached" });
      await press("Escape");
      await chat.ended("Stopped");
      await checkAccessibility(page);

      await press("Alt+p");
      const panel = page.getByRole("complementary", { name: "Details" });
      await panel.waitFor();
      await panel.getByRole("tab", { name: "Plan" }).waitFor();
      await checkAccessibility(page);
      await press("Alt+p");
      await panel.waitFor({ state: "detached" });

      await press("Alt+n");
      await page.getByRole("heading", { name: "What should we work on?" }).waitFor();
      await press("Control+k");
      await page.keyboard.type(`${width} ${colorScheme}`);
      await press("Enter");
      await page.getByRole("heading", { name: `Fix the test ${width} ${colorScheme}` }).waitFor();
      await checkAccessibility(page);
      await watch.close();
    });
  }
}
