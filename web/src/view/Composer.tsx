// Where a message is written. Enter sends, Shift+Enter makes a line, Escape stops the agent.

import { useEffect, useLayoutEffect, useRef, useState, type Dispatch, type KeyboardEvent, type ReactNode, type SetStateAction } from "react";
import type { Client } from "../api/client";
import { idempotencyKey } from "../api/idempotency";
import { mayHaveHappened } from "../api/problem";
import type { Command } from "../api/types";
import { CommandHints } from "./CommandHints";
import { focusMessageUnlessSearching, focusNext, MESSAGE_ID } from "./focus";
import { Icon } from "./Icon";
import type { Act } from "./SessionView";

interface Props {
  client: Client;
  sessionId: string;
  commands: Command[];
  /** The messages of this session, oldest first. The up arrow in an empty field writes the last one again. */
  sent: string[];
  text: string;
  setText: Dispatch<SetStateAction<string>>;
  running: boolean;
  act: Act;
  onStop(): void;
  children: ReactNode;
}

export function Composer({ client, sessionId, commands, sent, text, setText, running, act, onStop, children }: Props) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [sending, setSending] = useState(false);
  /**
   * A message without a response may have arrived. The page sends the same text again with the same key, and it runs
   * once.
   */
  const unanswered = useRef<{ text: string; queue: boolean; key: string } | null>(null);

  useEffect(focusMessageUnlessSearching, []);

  // The field grows with its content up to the maximum in the style sheet.
  useLayoutEffect(() => {
    const box = field.current;
    if (!box) return;
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight + 2}px`;
  }, [text]);

  useEffect(() => {
    if (!running) return;
    const press = (event: globalThis.KeyboardEvent) => {
      if (event.key === "Escape" && !event.isComposing && !event.defaultPrevented) onStop();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [running, onStop]);

  async function send() {
    const written = text;
    if (written.trim() === "" || sending) return;
    setSending(true);
    const before = unanswered.current;
    const attempt = before?.text === written ? before : { text: written, queue: running, key: idempotencyKey() };
    unanswered.current = attempt;
    const sent = await act(async () => {
      try {
        await client.prompt(sessionId, written, attempt.queue, attempt.key);
        unanswered.current = null;
      } catch (error) {
        if (!mayHaveHappened(error)) unanswered.current = null;
        throw error;
      }
    });
    setSending(false);
    // Text in the field is not replaced.
    if (field.current?.value === written) focusNext();
    if (sent) setText((now) => (now === written ? "" : now));
  }

  /** The message that the arrow keys have selected, as an index of `sent`. */
  const recalled = useRef<number | null>(null);

  /** Selects an earlier or a later message, while the field has no text of its own. Returns whether there is one. */
  function recall(event: KeyboardEvent): boolean {
    const shown = recalled.current;
    const at = shown !== null && text === sent[shown] ? shown : sent.length;
    if (at === sent.length && text !== "") return false;
    const next = event.key === "ArrowUp" ? at - 1 : at + 1;
    if (next < 0 || next > sent.length) return false;
    recalled.current = next;
    setText(sent[next] ?? "");
    return true;
  }

  function press(event: KeyboardEvent) {
    if ((event.key === "ArrowUp" || event.key === "ArrowDown") && recall(event)) {
      event.preventDefault();
      return;
    }
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void send();
  }

  return (
    <form
      className="composer"
      aria-label="Write a message"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <CommandHints
        commands={commands}
        text={text}
        onPick={(command) => {
          setText(`/${command} `);
          field.current?.focus();
        }}
      />
      <div className="composer-box">
        <label className="hidden" htmlFor={MESSAGE_ID}>
          Message
        </label>
        <textarea
          id={MESSAGE_ID}
          ref={field}
          rows={1}
          value={text}
          placeholder={running ? "Write the next message: it waits in the queue" : "Write a message"}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={press}
        />
        <div className="composer-row">
          <div className="options">{children}</div>
          {running && (
            <button className="button stop" type="button" aria-keyshortcuts="Escape" onClick={onStop}>
              <Icon name="stop" /> Stop <kbd aria-hidden="true">Esc</kbd>
            </button>
          )}
          <button className="button primary send" type="submit" disabled={text.trim() === "" || sending} aria-busy={sending}>
            <Icon name="send" />
            <span>{running ? "Queue" : "Send"}</span>
          </button>
        </div>
      </div>
    </form>
  );
}
