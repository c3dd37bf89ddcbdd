// Files of a person that a message contains: pictures, sounds, texts and other files as content blocks of ACP.

import type { ContentBlock } from "@acp-gateway/client";
import { record } from "@acp-gateway/client/read";
import { strings } from "../strings";

export interface Attachment {
  key: string;
  name: string;
  bytes: number;
  block: ContentBlock;
}

/** A prompt has at most 10 MiB, and base64 makes a file a third longer. */
export const MAX_BYTES = 7 * 1024 * 1024;

/** A picture that the page can show, and that models accept. */
const PICTURE = /^image\/(png|jpeg|gif|webp)$/;
const SOUND = /^audio\//;

/** The types of content that an agent accepts. Null: unknown, because no agent has the session. */
export interface Accepts {
  image: boolean;
  audio: boolean;
  embeddedContext: boolean;
}

export function accepts(promptCapabilities: unknown): Accepts | null {
  const raw = record(promptCapabilities);
  // Version 2 of ACP has objects where version 1 has `true`.
  const has = (name: string) => raw?.[name] === true || record(raw?.[name]) !== null;
  return raw && { image: has("image"), audio: has("audio"), embeddedContext: has("embeddedContext") };
}

/** Reads a file. Throws an error for people if a message cannot contain it. */
export async function readAttachment(file: File): Promise<Attachment> {
  if (file.size > MAX_BYTES) throw new Error(strings.composer.fileTooLarge(file.name));
  return { key: crypto.randomUUID?.() ?? `${file.name} ${Math.random()}`, name: file.name, bytes: file.size, block: await blockOf(file) };
}

async function blockOf(file: File): Promise<ContentBlock> {
  const mimeType = file.type || "application/octet-stream";
  if (PICTURE.test(mimeType)) return { type: "image", mimeType, data: await base64(file) };
  if (SOUND.test(mimeType)) return { type: "audio", mimeType, data: await base64(file) };
  const uri = `attachment:${encodeURIComponent(file.name)}`;
  const text = await textOf(file);
  if (text !== null) return { type: "resource", resource: { uri, mimeType: file.type || "text/plain", text } };
  return { type: "resource", resource: { uri, mimeType, blob: await base64(file) } };
}

/** Null if the file is not text. */
async function textOf(file: File): Promise<string | null> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",")[1] ?? "");
    reader.onerror = () => reject(new Error(strings.composer.unreadable(file.name)));
    reader.readAsDataURL(file);
  });
}

/** The reason why the agent does not get this attachment, or null. */
export function refusal({ name, block }: Attachment, accepted: Accepts | null): string | null {
  if (!accepted) return null;
  if (block.type === "image" && !accepted.image) return strings.composer.noPictures(name);
  if (block.type === "audio" && !accepted.audio) return strings.composer.noSounds(name);
  const isText = block.resource?.text !== undefined;
  if (block.type === "resource" && !isText && !accepted.embeddedContext) return strings.composer.noFiles(name);
  return null;
}

/** The blocks of a message. An agent without embedded resources gets a text file as text. */
export function promptBlocks(text: string, attachments: readonly Attachment[], accepted: Accepts | null): ContentBlock[] {
  const words: ContentBlock[] = text.trim() === "" ? [] : [{ type: "text", text }];
  return [...words, ...attachments.map(({ name, block }) => (accepted?.embeddedContext === false && block.resource?.text !== undefined ? quoted(name, block.resource.text) : block))];
}

function quoted(name: string, text: string): ContentBlock {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return { type: "text", text: `\n\n${name}:\n\n${fence}\n${text.replace(/\n$/, "")}\n${fence}\n` };
}

export function size(bytes: number): string {
  if (bytes < 1024) return strings.common.bytes(bytes);
  if (bytes < 1024 * 1024) return strings.common.kibibytes(Math.round(bytes / 1024));
  if (bytes < 1024 ** 3) return strings.common.mebibytes((bytes / 1024 ** 2).toFixed(1));
  return strings.common.gibibytes((bytes / 1024 ** 3).toFixed(1));
}
