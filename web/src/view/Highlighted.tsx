// Code with the colours of its language.

import { useHighlighted } from "../highlight/useHighlighted";

export function Highlighted({ language, text }: { language: string; text: string }) {
  const words = useHighlighted(language, text);
  return (
    <code>
      {words.map((word, index) =>
        word.kind === "" ? (
          word.text
        ) : (
          <span key={index} className={`code-${word.kind}`}>
            {word.text}
          </span>
        ),
      )}
    </code>
  );
}
