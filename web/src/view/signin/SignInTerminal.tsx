// The terminal of an agent's sign-in. It sends input line by line, as these commands expect.

import { useEffect, useRef, useState, type FormEvent } from "react";
import type { GatewayClient, Problem } from "@acp-gateway/client";
import { record, text } from "@acp-gateway/client/read";
import { explain, explainProblem } from "../../model/explain";
import { plainText } from "../../model/ansi";
import { strings } from "../../strings";

interface Props {
  client: GatewayClient;
  url: string;
  /** Why it did not work; null when it did. */
  onEnd(why: string | null): void;
}

/** Characters that are held. */
const KEPT = 50_000;

/** Keys that a line of text cannot hold. */
const KEYS: [string, string][] = [
  ["Up", "\u001b[A"],
  ["Down", "\u001b[B"],
  ["Enter", "\r"],
  ["Escape", "\u001b"],
  ["Ctrl C", "\u0003"],
];

export function SignInTerminal({ client, url, onEnd }: Props) {
  const [output, setOutput] = useState("");
  const [typed, setTyped] = useState("");
  const socket = useRef<WebSocket | null>(null);
  const shown = useRef<HTMLPreElement>(null);
  const ended = useRef(onEnd);
  useEffect(() => {
    ended.current = onEnd;
  });

  useEffect(() => {
    let open = true;
    const end = (why: string | null) => {
      if (open) ended.current(why);
      open = false;
    };
    const words = new TextDecoder();
    client.signInTerminal(url).then(
      (made) => {
        if (!open) return made.close();
        socket.current = made;
        made.onmessage = ({ data }: MessageEvent<unknown>) => {
          if (data instanceof ArrayBuffer) setOutput((before) => (before + words.decode(data, { stream: true })).slice(-KEPT));
          else if (typeof data === "string") end(endOf(data));
        };
        made.onclose = () => end(strings.signin.connectionLost);
      },
      (reason: unknown) => end(explain(reason).title),
    );
    return () => {
      open = false;
      socket.current?.close();
    };
  }, [client, url]);

  useEffect(() => {
    if (shown.current) shown.current.scrollTop = shown.current.scrollHeight;
  }, [output]);

  function press(keys: string) {
    if (socket.current?.readyState === WebSocket.OPEN) socket.current.send(new TextEncoder().encode(keys));
  }

  function submit(event: FormEvent) {
    event.preventDefault();
    press(`${typed}\r`);
    setTyped("");
  }

  return (
    <section className="sign-in" aria-label={strings.signin.terminal}>
      <pre className="output" ref={shown} tabIndex={0} role="log" aria-label={strings.signin.agentSays}>
        {plainText(output)}
      </pre>
      <form className="sign-in-line" onSubmit={submit}>
        <label className="hidden" htmlFor="sign-in-line">
          {strings.signin.youType}
        </label>
        <input id="sign-in-line" autoComplete="off" autoCapitalize="off" spellCheck={false} value={typed} onChange={(event) => setTyped(event.target.value)} />
        <button className="button small" type="submit">
          {strings.signin.typeIt}
        </button>
      </form>
      <div className="sign-in-keys">
        {KEYS.map(([name, keys]) => (
          <button key={name} className="button small" type="button" onClick={() => press(keys)}>
            {name}
          </button>
        ))}
      </div>
    </section>
  );
}

function endOf(message: string): string | null {
  let said: unknown;
  try {
    said = JSON.parse(message);
  } catch {
    return strings.signin.unknownMessage;
  }
  const end = record(said);
  if (end?.["type"] === "problem") {
    const words = explainProblem((record(end["problem"]) ?? { code: "internal" }) as unknown as Problem);
    return [words.title, words.detail].filter(Boolean).join(" ");
  }
  if (end?.["type"] !== "exit") return strings.signin.restarts;
  if (end["exitCode"] === 0) return null;
  return text(end["signal"]) === null ? strings.signin.endedWith(String(end["exitCode"])) : strings.signin.endedBy(String(end["signal"]));
}
