// Writing a message: suggestions of commands and files, and attachments.
//
// The environment is that of browser.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Api } from "./support/api.mjs";
import { checkAccessibility, screenshot } from "./support/browser.mjs";
import { Chat } from "./support/chat.mjs";
import { nodeAgent, oneChat } from "./support/one_chat.mjs";

const agent = fileURLToPath(new URL("support/terse_agent.mjs", import.meta.url));
const { page, chat, link, gateway } = await oneChat({ config: `[agents.demo]\nbuiltin = "demo"\n${nodeAgent("terse", agent)}`, agent: /demo/, link: (started) => started.adminLink() });
const api = new Api(link);
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const picture = { name: "shot.png", mimeType: "image/png", buffer: Buffer.from(PNG, "base64") };
const notes = { name: "notes.md", mimeType: "text/markdown", buffer: Buffer.from("# Notes\n") };

const sessionId = () => page.url().split("/").at(-1);
const options = () => page.locator(".suggestions").getByRole("option");
const active = () => page.locator('.suggestions [aria-selected="true"]');
const chips = () => page.getByRole("list", { name: "Attachments" }).getByRole("listitem");
const sentBlocks = async () => {
  const events = await api.call("GET", `sessions/${sessionId()}/events?types=prompt.started&limit=200`);
  return events.events.at(-1).prompt;
};

test("commands are suggested while they are typed, and keys select one", async () => {
  await chat.message.pressSequentially("/");
  await options().first().waitFor();
  await chat.message.pressSequentially("pl");
  await active().filter({ hasText: "/plan" }).waitFor();
  await checkAccessibility(page);
  await screenshot(page, "suggestions-commands");
  const named = await chat.message.getAttribute("aria-activedescendant");
  assert.equal(await page.locator(`#${named}`).getAttribute("aria-selected"), "true");
  await chat.message.press("Tab");
  assert.equal(await chat.message.inputValue(), "/plan ");
  assert.equal(await options().count(), 0);
  await chat.message.fill("/slo");
  await options().filter({ hasText: "seconds, 1 to 600" }).waitFor();
  await chat.message.fill("");
});

test("Escape closes the suggestions, and Enter sends a whole command", async () => {
  await chat.message.fill("/hel");
  await options().first().waitFor();
  await chat.message.press("Escape");
  assert.equal(await options().count(), 0);
  await chat.message.fill("/about");
  assert.equal(await options().count(), 0);
  await chat.message.press("Enter");
  await chat.turns.nth(0).waitFor();
  await chat.ended("Finished");
});

test("files are suggested after @, and the message contains the chosen ones", async () => {
  for (const name of ["src/parser.rs", "src/main.rs", "notes.txt"]) {
    const response = await fetch(`${gateway.origin}/v1/sessions/${sessionId()}/files/${name}`, {
      method: "PUT",
      headers: { Authorization: `Bearer ${api.key}` },
      body: `content of ${name}`,
    });
    assert.equal(response.status, 201);
  }
  await chat.message.pressSequentially("look at @pars");
  await active().filter({ hasText: "src/parser.rs" }).waitFor();
  await screenshot(page, "suggestions-files");
  await chat.message.press("Enter");
  assert.equal(await chat.message.inputValue(), "look at @src/parser.rs ");
  await chat.message.pressSequentially("and @sr");
  await options().filter({ hasText: "folder" }).click();
  await options().filter({ hasText: "src/main.rs" }).click();
  assert.equal(await chat.message.inputValue(), "look at @src/parser.rs and @src/main.rs ");
  await chat.message.press("Enter");
  await chat.turns.nth(1).waitFor();
  await chat.ended("Finished");
  const [text, ...files] = await sentBlocks();
  assert.equal(text.text, "look at @src/parser.rs and @src/main.rs ");
  assert.deepEqual(files.map((block) => block.resource.text).sort(), ["content of src/main.rs", "content of src/parser.rs"]);
});

test("folders and names with spaces are suggested in their order, and attached", async () => {
  for (const name of ["my docs/the list.txt", "my docs/a2.txt", "my docs/a10.txt", "my docs/deep/x.txt"]) {
    const path = name.split("/").map(encodeURIComponent).join("/");
    const response = await fetch(`${gateway.origin}/v1/sessions/${sessionId()}/files/${path}`, {
      method: "PUT",
      headers: { Authorization: `Bearer ${api.key}` },
      body: `content of ${name}`,
    });
    assert.equal(response.status, 201);
  }
  const turns = await chat.turns.count();
  const words = () => options().locator("code").allTextContents();
  await chat.message.fill("");
  await chat.message.pressSequentially("look at @");
  await active().filter({ hasText: "my docs/" }).waitFor();
  assert.deepEqual(await words(), ["my docs/", "src/", "notes.txt"]);
  await chat.message.press("Enter");
  assert.equal(await chat.message.inputValue(), 'look at @"my docs/');
  await active().filter({ hasText: "my docs/deep/" }).waitFor();
  assert.deepEqual(await words(), ["my docs/deep/", "my docs/a2.txt", "my docs/a10.txt", "my docs/the list.txt"]);
  await screenshot(page, "suggestions-folder");
  await chat.message.pressSequentially("the li");
  await active().filter({ hasText: "the list.txt" }).waitFor();
  await chat.message.press("Enter");
  assert.equal(await chat.message.inputValue(), 'look at @"my docs/the list.txt" ');
  assert.equal(await options().count(), 0);
  await chat.message.press("Enter");
  await chat.turns.nth(turns).waitFor();
  await chat.ended("Finished");
  const [, file] = await sentBlocks();
  assert.equal(file.resource.text, "content of my docs/the list.txt");
});

test("a suggestion keeps the text behind the caret", async () => {
  await chat.message.fill("read @no and say why");
  await chat.message.evaluate((field) => field.setSelectionRange(8, 8));
  await active().filter({ hasText: "notes.txt" }).waitFor();
  await chat.message.press("Enter");
  assert.equal(await chat.message.inputValue(), "read @notes.txt and say why");
  assert.equal(await chat.message.evaluate((field) => field.selectionStart), "read @notes.txt ".length);
  await chat.message.fill("");
});

test("files are attached by choice, by drop and from the clipboard", async () => {
  const chooser = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Attach files" }).click();
  await (await chooser).setFiles([picture, notes]);
  await chips().nth(1).waitFor();
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(["dropped"], "dropped.txt", { type: "text/plain" }));
    document.body.dispatchEvent(new DragEvent("dragover", { dataTransfer: data, bubbles: true, cancelable: true }));
    document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  });
  await chips().nth(2).waitFor();
  await chat.message.evaluate((field) => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array([0, 255, 254])], "bytes.bin"));
    field.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
  });
  await chips().nth(3).waitFor();
  assert.deepEqual(await chips().locator(".chip-name").allTextContents(), ["shot.png", "notes.md", "dropped.txt", "bytes.bin"]);
  await page.getByRole("button", { name: "Remove dropped.txt" }).click();
  await checkAccessibility(page);
  await screenshot(page, "attachments");
  await chat.send("look");
  await chat.ended("Finished");
  assert.equal(await chips().count(), 0);
  const [text, image, resource, bytes] = await sentBlocks();
  assert.deepEqual([text.text, image.data, resource.resource.text, bytes.resource.blob], ["look", PNG, "# Notes\n", "AP/+"]);
  await chat.lastTurn.locator(".from-person img").waitFor();
});

test("a file that is too large is not attached", async () => {
  const chooser = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Attach files" }).click();
  await (await chooser).setFiles([{ name: "large.bin", mimeType: "application/octet-stream", buffer: Buffer.alloc(8 * 1024 * 1024) }]);
  await page.getByRole("alert").filter({ hasText: "large.bin has more than 7 MiB" }).waitFor();
  assert.equal(await chips().count(), 0);
});

test("a question that appears while a person types gets neither the focus nor the keys", async () => {
  await chat.message.fill("");
  await chat.message.pressSequentially("/permission");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await chat.message.pressSequentially("1 more thing");
  await chat.permission.locator('[aria-disabled="false"]').first().waitFor();
  await page.waitForFunction(() => document.querySelector("#message").value === "1 more thing");
  assert.equal(await chat.message.evaluate((field) => field === document.activeElement), true);
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await chat.ended("Stopped");
  assert.equal(await chat.message.inputValue(), "1 more thing");
  await chat.message.fill("");
});

test("text that is typed while a message is on its way is the next message", async () => {
  let respond;
  const held = new Promise((resolve) => (respond = resolve));
  await page.route("**/prompts", async (route) => {
    const response = await route.fetch();
    await held;
    await route.fulfill({ response });
  });
  await chat.message.fill("/help");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await chat.message.pressSequentially(" and then");
  await chat.ended("Finished");
  respond();
  await page.waitForFunction(() => document.querySelector("#message").value === " and then");
  await page.unroute("**/prompts");
  await chat.message.fill("");
});

test("a message that is sent shows the end of the conversation, and the page itself does not scroll", async () => {
  await chat.send("/long 12");
  await chat.ended("Finished");
  await page.getByRole("region", { name: "Conversation" }).evaluate((box) => box.scrollTo(0, 0));
  await page.getByRole("button", { name: "Jump to the latest" }).waitFor();
  await chat.send("/help");
  await chat.ended("Finished");
  await page.waitForFunction(() => {
    const box = document.querySelector(".transcript");
    return box.scrollHeight - box.scrollTop - box.clientHeight < 80;
  });
  assert.deepEqual(await page.evaluate(() => [document.documentElement.scrollHeight - innerHeight, document.body.scrollHeight - innerHeight]), [0, 0]);
});

test("a new session begins with a message that is only a picture", async () => {
  await page.goto(`${gateway.origin}/#/`);
  await chat.chooseAgent(/demo/);
  const chooser = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Attach files" }).click();
  await (await chooser).setFiles([picture]);
  await chips().first().waitFor();
  await screenshot(page, "start-attachment");
  await page.getByRole("button", { name: "Start and send" }).click();
  await page.waitForURL(/#\/s\/[0-9a-f-]+$/);
  await chat.ended("Finished");
  assert.deepEqual((await sentBlocks()).map((block) => block.type), ["image"]);
});

test("an agent that accepts only text gets a text file as text, and no picture", async () => {
  await page.goto(`${gateway.origin}/#/`);
  await chat.start(/terse/);
  const attach = async (file) => {
    const chooser = page.waitForEvent("filechooser");
    await page.getByRole("button", { name: "Attach files" }).click();
    await (await chooser).setFiles([file]);
  };
  await attach(picture);
  await page.getByRole("alert").filter({ hasText: "The agent does not accept pictures (shot.png)." }).waitFor();
  await attach(notes);
  await chips().first().waitFor();
  assert.equal(await page.getByRole("alert").count(), 0);
  await chat.send("read this");
  await chat.lastTurn.locator(".problem").waitFor();
  const blocks = await sentBlocks();
  assert.deepEqual(blocks.map((block) => block.text), ["read this", "\n\nnotes.md:\n\n```\n# Notes\n```\n"]);
});

test("on a touch screen, Enter begins a line, and the button sends and puts the keyboard away", async () => {
  const context = await page.context().browser().newContext({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  try {
    const phone = new Chat(await context.newPage());
    await phone.page.goto(link);
    await phone.message.tap();
    await phone.message.pressSequentially("one");
    await phone.page.keyboard.press("Enter");
    await phone.message.pressSequentially("two");
    assert.equal(await phone.message.inputValue(), "one\ntwo");
    await phone.chooseAgent(/demo/);
    await phone.page.getByRole("button", { name: "Start and send" }).tap();
    await phone.page.waitForURL(/#\/s\/[0-9a-f-]+$/);
    await phone.ended("Finished");
    await phone.message.tap();
    await phone.message.fill("/about");
    await phone.page.keyboard.press("Enter");
    assert.equal(await phone.message.inputValue(), "/about\n");
    await phone.page.getByRole("button", { name: "Send", exact: true }).tap();
    await phone.turns.nth(1).waitFor();
    await phone.ended("Finished");
    assert.equal(await phone.message.evaluate((field) => field === document.activeElement), false);
  } finally {
    await context.close();
  }
});
