import { describe, expect, test } from "vitest";
import { accepts, promptBlocks, refusal, size, type Attachment } from "../../src/model/attachments";

const picture: Attachment = { key: "1", name: "a.png", bytes: 3, block: { type: "image", mimeType: "image/png", data: "AAAA" } };
const notes: Attachment = { key: "2", name: "notes.md", bytes: 3, block: { type: "resource", resource: { uri: "attachment:notes.md", text: "a\n```\nb\n```\n" } } };
const archive: Attachment = { key: "3", name: "a.zip", bytes: 3, block: { type: "resource", resource: { uri: "attachment:a.zip", blob: "AAAA" } } };

describe("the types that an agent accepts", () => {
  test.each([
    ["nothing", {}, { image: false, audio: false, embeddedContext: false }],
    ["version 1", { image: true, audio: false, embeddedContext: true }, { image: true, audio: false, embeddedContext: true }],
    ["version 2", { image: {}, embeddedContext: null }, { image: true, audio: false, embeddedContext: false }],
    ["unknown", null, null],
    ["a wrong type", [true], null],
  ])("%s", (_, raw, expected) => expect(accepts(raw)).toEqual(expected));

  test("decide which attachments it gets", () => {
    const nothing = accepts({});
    expect(refusal(picture, nothing)).toBe("The agent does not accept pictures (a.png).");
    expect(refusal(archive, nothing)).toBe("The agent does not accept files of this type (a.zip).");
    expect(refusal(notes, nothing)).toBeNull();
    expect([picture, notes, archive].map((each) => refusal(each, null))).toEqual([null, null, null]);
  });
});

test("a message is its text and its attachments", () => {
  expect(promptBlocks("look", [picture, notes], null)).toEqual([{ type: "text", text: "look" }, picture.block, notes.block]);
  expect(promptBlocks(" ", [picture], null)).toEqual([picture.block]);
});

test("an agent without embedded resources gets a text file as text, in a longer fence than the text has", () => {
  const [, block] = promptBlocks("look", [notes], accepts({}));
  expect(block).toEqual({ type: "text", text: "\n\nnotes.md:\n\n````\na\n```\nb\n```\n````\n" });
});

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [2048, "2 KiB"],
  [1_572_864, "1.5 MiB"],
  [5 * 1024 ** 3, "5.0 GiB"],
])("%i bytes are %s", (bytes, expected) => expect(size(bytes)).toBe(expected));
