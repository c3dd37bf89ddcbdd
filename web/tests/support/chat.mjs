// What a person does with the page, in their words.

import assert from "node:assert/strict";

export class Chat {
  constructor(page) {
    this.page = page;
  }

  get message() {
    return this.page.getByRole("textbox", { name: "Message" });
  }

  get turns() {
    return this.page.getByRole("article", { name: "Turn", exact: true });
  }

  get lastTurn() {
    return this.turns.last();
  }

  /** The messages that wait. */
  get queued() {
    return this.page.getByRole("region", { name: "Queue" }).getByRole("listitem");
  }

  get permission() {
    // In the inbox, it is no landmark.
    return this.page.getByRole("region", { name: /asks permission/ }).or(this.page.getByRole("group", { name: /asks permission/ }));
  }

  /** Any question that is no permission. */
  get question() {
    return this.page.getByRole("region", { name: /^The agent asks/ }).and(this.page.locator(".question"));
  }

  /** The last part of the answer in the last turn. */
  get answer() {
    return this.lastTurn.locator(".from-agent").last();
  }

  /** Selects a value of an option in the menu of the composer. */
  async set(option, value) {
    await this.page.getByRole("button", { name: "More options" }).click();
    await this.page.getByLabel(option).selectOption(value);
    await this.page.keyboard.press("Escape");
  }

  /** Opens the menu of agents on the start page. */
  async openAgents() {
    const menu = this.page.getByRole("group", { name: "Agent of the session" });
    if (!(await menu.isVisible())) await this.page.getByRole("button", { name: /^Agent:/ }).click();
    await menu.waitFor();
    return menu;
  }

  async chooseAgent(agent) {
    const menu = await this.openAgents();
    // The pointer selects and closes the menu, unless the agent was selected before.
    await menu.getByRole("radio", { name: agent }).click();
    if (await menu.isVisible()) await this.page.keyboard.press("Escape");
  }

  async start(agent) {
    await this.chooseAgent(agent);
    await this.page.getByRole("button", { name: "Start session" }).click();
    await this.page.waitForURL(/#\/s\/[0-9a-f-]+$/);
    await this.message.waitFor();
  }

  async send(text) {
    const messages = this.turns.or(this.queued);
    const before = await messages.count();
    await this.message.fill(text);
    await this.message.press("Enter");
    await messages.nth(before).waitFor();
  }

  async ended(words) {
    await this.lastTurn.locator(".turn-end, .problem").filter({ hasText: words }).waitFor();
  }

  /** Reads the earlier part of a long session. The key of the browser's search does it. */
  async readAll() {
    await this.turns.first().waitFor();
    await this.page.keyboard.press("Control+f");
    await this.page.locator(".earlier").waitFor({ state: "detached" });
  }

  /** All that the conversation shows, folded parts included. */
  transcript() {
    return this.page.getByRole("log").evaluate((log) => log.textContent);
  }

  async sameAs(before) {
    await this.page.waitForFunction(
      ([length]) => document.querySelector("[role=log]")?.textContent.length >= length,
      [before.length],
    );
    assert.equal(await this.transcript(), before);
  }
}
