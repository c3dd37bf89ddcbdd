// A code block of a message, with its language and buttons that copy and wrap it.

import { memo, useState } from "react";
import { visible } from "@acp-gateway/client/read";
import { plainText } from "../model/ansi";
import { CopyButton } from "./CopyButton";
import { Highlighted } from "./Highlighted";
import { Icon } from "./Icon";
import { Coloured, useParts } from "./Parts";
import { strings } from "../strings";

const MAX_LANGUAGE = 24;

export const CodeBlock = memo(function CodeBlock({ language, text }: { language: string; text: string }) {
  const [wrapped, setWrapped] = useState(false);
  const { parts, more } = useParts(text);
  const name = visible(language).slice(0, MAX_LANGUAGE) || strings.content.plainText;
  // Agents quote the output of commands, with its colours.
  const isOutput = text.includes("\u001b");
  return (
    <div className={wrapped ? "code-block wrapped" : "code-block"} role="group" aria-label={strings.content.code(name)}>
      <div className="code-head">
        <span className="code-language">{name}</span>
        <button className="icon-button" type="button" title={strings.content.wrap} aria-pressed={wrapped} onClick={() => setWrapped(!wrapped)}>
          <Icon name="wrap" />
          <span className="hidden">{strings.content.wrap}</span>
        </button>
        <CopyButton text={() => (isOutput ? plainText(text) : text)} icon="copy" />
      </div>
      <pre tabIndex={0} dir="ltr">
        {isOutput ? (
          <code>
            {parts.map((part, index) => (
              <Coloured key={index} text={part} />
            ))}
          </code>
        ) : (
          parts.map((part, index) => <Highlighted key={index} language={parts.length === 1 ? language : ""} text={part} />)
        )}
      </pre>
      {more}
    </div>
  );
});
