// One session on one page, for all tests of a file.

import { after } from "node:test";
import { launch, Watch } from "./browser.mjs";
import { Chat } from "./chat.mjs";
import { Gateway } from "./gateway.mjs";

/**
 * Starts a gateway with this configuration, opens the page with the options of `Watch.page`, and starts a session with the
 * agent. `link` makes the link of the page.
 */
export async function oneChat({ config, agent, link = (gateway) => gateway.link, ...options }) {
  const open = [];
  const close = async () => {
    const failures = [];
    for (const end of open.reverse()) await end().catch((error) => failures.push(error));
    if (failures.length > 0) throw failures[0];
  };
  after(close);
  try {
    const browser = await launch();
    open.push(() => browser.close());
    const gateway = await Gateway.start({ config });
    open.push(() => gateway.end());
    const watch = await Watch.page(browser, gateway.origin, { colorScheme: "light", ...options });
    open.push(() => watch.close());
    const { page } = watch;
    const chat = new Chat(page);
    const address = await link(gateway);
    await page.goto(address);
    await chat.start(agent);
    return { gateway, watch, page, chat, link: address };
  } catch (error) {
    await close();
    throw error;
  }
}

/** The entry of an agent that is a program of this folder. */
export function nodeAgent(name, file, lines = []) {
  const command = [`command = ${JSON.stringify(process.execPath)}`, `args = ${JSON.stringify([file])}`];
  return `[agents.${name}]\n${[...command, ...lines].join("\n")}\n`;
}
