// The attachments of the message that a person writes.

import { useEffect, useRef, useState, type ClipboardEvent } from "react";
import { MAX_BYTES, readAttachment, refusal, type Accepts, type Attachment } from "../model/attachments";
import { strings } from "../strings";

export interface Attachments {
  all: Attachment[];
  /** Why a file was not added or not sent. */
  problem: string | null;
  add(files: Iterable<File>): void;
  remove(key: string): void;
  clear(): void;
  /** Whether the agent accepts all. If it does not, `problem` says why. */
  areAccepted(by: Accepts | null): boolean;
}

export function useAttachments(accepted: Accepts | null): Attachments {
  // Files are read one after another, while the list may change.
  const list = useRef<Attachment[]>([]);
  const [all, setAll] = useState<Attachment[]>([]);
  const [problem, setProblem] = useState<string | null>(null);

  function put(attachments: Attachment[]) {
    list.current = attachments;
    setAll(attachments);
  }

  async function addAll(files: File[]) {
    setProblem(null);
    for (const file of files) {
      try {
        const attachment = await readAttachment(file);
        const why = refusal(attachment, accepted) ?? tooMuch(list.current, attachment);
        if (why === null) put([...list.current, attachment]);
        else setProblem(why);
      } catch (error) {
        setProblem(error instanceof Error ? error.message : String(error));
      }
    }
  }

  // A file can be added before it is known what the agent accepts.
  useEffect(() => {
    const refused = list.current.filter((attachment) => refusal(attachment, accepted) !== null);
    if (refused.length === 0) return;
    put(list.current.filter((attachment) => !refused.includes(attachment)));
    setProblem(refusal(refused[0]!, accepted));
  }, [accepted]);

  return {
    all,
    problem,
    add: (files) => void addAll([...files]),
    remove: (key) => {
      setProblem(null);
      put(list.current.filter((attachment) => attachment.key !== key));
    },
    clear: () => put([]),
    areAccepted: (by) => {
      const why = list.current.map((attachment) => refusal(attachment, by)).find((reason) => reason !== null) ?? null;
      setProblem(why);
      return why === null;
    },
  };
}

function tooMuch(before: Attachment[], attachment: Attachment): string | null {
  const bytes = before.reduce((sum, { bytes }) => sum + bytes, attachment.bytes);
  return bytes <= MAX_BYTES ? null : strings.composer.messageTooLarge(attachment.name);
}

/** Adds the files of the clipboard. Text is pasted into the field as usual. */
export function pasteFiles(event: ClipboardEvent, add: (files: Iterable<File>) => void): void {
  const files = [...event.clipboardData.files];
  if (files.length === 0) return;
  event.preventDefault();
  add(files);
}

/** Files that are dropped anywhere on the page. Without this, the browser would leave the page and open the file. */
export function useDroppedFiles(add: (files: Iterable<File>) => void): boolean {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") === true;
    const drag = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent) => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(false);
      add([...(event.dataTransfer?.files ?? [])]);
    };
    addEventListener("dragover", drag);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", drag);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  });
  return over;
}
