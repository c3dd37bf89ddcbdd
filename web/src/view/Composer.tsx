// Where a message is written. Enter sends, Shift+Enter makes a line, Escape stops the agent. One button sends, or stops while
// the field is empty.

import { useEffect, useRef, useState, type Dispatch, type KeyboardEvent, type ReactNode, type SetStateAction } from "react";
import { flushSync } from "react-dom";
import { type GatewayClient, type Command, idempotencyKey, mayHaveHappened, type NewPrompt } from "@acp-gateway/client";
import { promptBlocks, type Accepts } from "../model/attachments";
import { mentioned } from "../model/suggest";
import { strings } from "../strings";
import { AttachButton } from "./AttachButton";
import { AttachmentChips } from "./AttachmentChips";
import { focusMessageIfFree, focusNext, sendsText } from "./focus";
import { Icon } from "./Icon";
import type { Act } from "./act";
import { MessageField } from "./MessageField";
import { useAttachments, useDroppedFiles } from "./useAttachments";

interface Props {
  client: GatewayClient;
  sessionId: string;
  commands: Command[];
  /** Whether the key may see the files of the session. */
  mayFiles: boolean;
  accepted: Accepts | null;
  /** The messages of this session, oldest first. The up arrow in an empty field writes the last one again. */
  sent: string[];
  text: string;
  setText: Dispatch<SetStateAction<string>>;
  running: boolean;
  /** Changes after each reconnect. */
  reached: number;
  act: Act;
  onStop(): void;
  /** Called when the gateway has the message. */
  onSent(): void;
  children: ReactNode;
}

interface Attempt {
  body: NewPrompt;
  key: string;
}

/** The button that sends becomes the one that stops, and returns. A second press of it must not do the opposite. */
const SETTLE_MS = 600;

export function Composer({ client, sessionId, commands, mayFiles, accepted, sent, text, setText, running, reached, act, onStop, onSent, children }: Props) {
  const [sending, setSending] = useState(false);
  /** The number of messages and stops here, and of those that were more than a moment ago. */
  const [[actions, settled], setActions] = useState<[number, number]>([0, 0]);
  const settles = settled < actions;
  const settle = () => setActions(([before, old]) => [before + 1, old]);
  /** A press that follows typed text is intended. */
  const write: typeof setText = (written) => {
    setText(written);
    setActions((before) => (before[0] === before[1] ? before : [before[0], before[0]]));
  };
  const attachments = useAttachments(accepted);
  const dropping = useDroppedFiles(attachments.add);
  const chosenFiles = useRef(new Set<string>());
  const latestText = useRef(text);
  latestText.current = text;
  /**
   * A message without a response may have arrived. The page sends the same message again with the same key, and it runs
   * once.
   */
  const unanswered = useRef<Attempt | null>(null);
  const empty = text.trim() === "" && attachments.all.length === 0;

  useEffect(focusMessageIfFree, []);

  // The time begins when the button has changed on the page.
  useEffect(() => {
    const timer = setTimeout(() => setActions([actions, actions]), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [actions]);

  useEffect(() => {
    if (!running) return;
    const press = (event: globalThis.KeyboardEvent) => {
      if (event.key === "Escape" && !event.isComposing && !event.defaultPrevented) onStop();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [running, onStop]);

  function written(): NewPrompt {
    const files = mentioned(text, chosenFiles.current).map((path) => ({ path }));
    return { prompt: promptBlocks(text, attachments.all, accepted), ...(files.length > 0 ? { attachments: files } : {}) };
  }

  /** The message without a response, if the field still has it. */
  function sameAgain(): Attempt | null {
    const before = unanswered.current;
    return before && JSON.stringify({ ...before.body, queue: undefined }) === JSON.stringify(written()) ? before : null;
  }

  async function send() {
    if (empty || sending || !attachments.areAccepted(accepted)) return;
    setSending(true);
    const sentText = text;
    const body = written();
    const attempt = sameAgain() ?? { body: running ? { ...body, queue: true } : body, key: idempotencyKey() };
    unanswered.current = attempt;
    const arrived = await act(async () => {
      try {
        await client.prompt(sessionId, attempt.body, { idempotencyKey: attempt.key });
        unanswered.current = null;
      } catch (error) {
        if (!mayHaveHappened(error)) unanswered.current = null;
        throw error;
      }
    });
    setSending(false);
    // Text in the field is not replaced.
    if (latestText.current === sentText) focusNext();
    if (!arrived) return;
    settle();
    onSent();
    attachments.clear();
    // Text that was typed after the sent message begins the next one. At once, because the next character replaces the text of the
    // field.
    flushSync(() => setText((now) => (now.startsWith(sentText) ? now.slice(sentText.length) : now)));
  }

  // After a reconnect, a message without a response is sent again.
  const sendAgain = useRef(() => {});
  useEffect(() => {
    sendAgain.current = () => void (sameAgain() && send());
  });
  useEffect(() => sendAgain.current(), [reached]);

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
    if (!sendsText(event)) return;
    event.preventDefault();
    void send();
  }

  const stops = running && empty && !sending && !settles;
  return (
    <form
      className="composer"
      aria-label={strings.composer.form}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <div className={dropping ? "composer-box dropping" : "composer-box"}>
        <AttachmentChips attachments={attachments} />
        <MessageField
          client={client}
          sessionId={mayFiles ? sessionId : null}
          commands={commands}
          label={strings.composer.message}
          placeholder={running ? strings.composer.placeholderRunning : strings.composer.placeholder(commands.length > 0, mayFiles)}
          text={text}
          onText={write}
          chosenFiles={chosenFiles}
          onPress={press}
          onFiles={attachments.add}
        />
        <div className="composer-row">
          <AttachButton onPick={attachments.add} />
          <div className="options">{children}</div>
          {running && !empty && !sending && !settles && (
            <button className="icon-button" type="button" title={strings.composer.stopTitle} onClick={onStop}>
              <Icon name="stop" />
              <span className="hidden">{strings.composer.stop}</span>
            </button>
          )}
          <button
            className={stops ? "button primary round stops" : "button primary round"}
            type={stops ? "button" : "submit"}
            title={stops ? strings.composer.stopTitle : running ? strings.composer.queueTitle : strings.composer.sendTitle}
            aria-keyshortcuts={stops ? "Escape" : "Enter"}
            disabled={!stops && (empty || sending)}
            aria-busy={sending}
            onClick={(event) => {
              // The second click of a double click was meant for the first button, however late it arrives.
              if (settles || event.detail > 1) return event.preventDefault();
              if (!stops) return;
              settle();
              onStop();
              focusNext();
            }}
          >
            <Icon name={stops ? "stop" : "send"} />
            <span className="hidden">{stops ? strings.composer.stop : running ? strings.composer.queue : strings.common.send}</span>
          </button>
        </div>
      </div>
    </form>
  );
}
