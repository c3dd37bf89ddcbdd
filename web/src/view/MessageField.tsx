// The field of a message, with suggestions of commands and files. It grows with its text.

import { useEffect, useLayoutEffect, useRef, useState, type KeyboardEvent, type RefObject } from "react";
import type { Command, GatewayClient } from "@acp-gateway/client";
import type { Typed } from "../model/suggest";
import { MESSAGE_ID } from "./focus";
import { SuggestionList, suggestionId, SUGGESTIONS_ID } from "./SuggestionList";
import { pasteFiles } from "./useAttachments";
import { useSuggestions, type Suggestion } from "./useSuggestions";

interface Props {
  client: GatewayClient;
  /** The session whose files are suggested. Null: no files are. */
  sessionId: string | null;
  commands: Command[];
  label: string;
  placeholder: string;
  text: string;
  onText(text: string): void;
  /** The files that were chosen from suggestions are added to it. */
  chosenFiles: RefObject<Set<string>>;
  /** A key that is not for the suggestions. */
  onPress(event: KeyboardEvent): void;
  onFiles(files: Iterable<File>): void;
}

export function MessageField({ client, sessionId, commands, label, placeholder, text, onText, chosenFiles, onPress, onFiles }: Props) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [caret, setCaret] = useState(text.length);
  const suggestions = useSuggestions({ client, sessionId, commands, text, caret, onPick: pick });
  const suggests = suggestions.all.length > 0;

  // It grows up to the maximum in the style sheet.
  useLayoutEffect(() => {
    const box = field.current;
    if (!box) return;
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight + 2}px`;
  }, [text]);

  // A draft goes on at its end.
  useLayoutEffect(() => field.current?.setSelectionRange(text.length, text.length), []);

  useEffect(() => {
    const moved = () => field.current && document.activeElement === field.current && setCaret(field.current.selectionStart);
    document.addEventListener("selectionchange", moved);
    return () => document.removeEventListener("selectionchange", moved);
  }, []);

  /** Writes the suggestion in place of what was typed. */
  function pick(suggestion: Suggestion, typed: Typed) {
    const box = field.current;
    if (!box) return;
    if (suggestion.path !== null) chosenFiles.current.add(suggestion.path);
    const at = typed.from + suggestion.text.length;
    // The closing quote of a path that is changed.
    const behind = suggestion.text.endsWith('" ') ? text.slice(caret).replace(/^[^"\s]*"/, "") : text.slice(caret);
    const rest = behind.replace(/^ /, suggestion.text.endsWith(" ") ? "" : " ");
    onText(text.slice(0, typed.from) + suggestion.text + rest);
    setCaret(at);
    placeCaret.current = at;
    box.focus();
  }

  /** React puts the caret at the end of a text that it changes. */
  const placeCaret = useRef<number | null>(null);
  useLayoutEffect(() => {
    if (placeCaret.current === null) return;
    field.current?.setSelectionRange(placeCaret.current, placeCaret.current);
    placeCaret.current = null;
  });

  return (
    <>
      <SuggestionList suggestions={suggestions} onPick={pick} />
      <label className="hidden" htmlFor={MESSAGE_ID}>
        {label}
      </label>
      <textarea
        id={MESSAGE_ID}
        ref={field}
        rows={1}
        dir="auto"
        value={text}
        placeholder={placeholder}
        aria-autocomplete="list"
        aria-controls={suggests ? SUGGESTIONS_ID : undefined}
        aria-activedescendant={suggests ? suggestionId(suggestions.active) : undefined}
        onChange={(event) => {
          onText(event.target.value);
          setCaret(event.target.selectionStart);
        }}
        onKeyDown={(event) => {
          if (!suggestions.press(event)) onPress(event);
        }}
        onPaste={(event) => pasteFiles(event, onFiles)}
      />
    </>
  );
}
