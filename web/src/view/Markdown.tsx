// The only component that inserts DOM nodes which React did not create. All of them come from `sanitize`,
// and formulas from the part that `useMaths` loads.

import { memo, useLayoutEffect, useMemo, useRef } from "react";
import type { Maths } from "../maths/maths";
import { openFence } from "../model/parts";
import { CodeBlock } from "./CodeBlock";
import { useParts } from "./Parts";
import { renderBlocks } from "./renderBlocks";
import { sanitize } from "./sanitize";
import { useMaths } from "./useMaths";

/** Characters of a part. Messages are seldom longer. */
const SIZE = 25_000;

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const { parts, more } = useParts(text, SIZE);
  const texts = useMemo(() => withFences(parts), [parts]);
  return (
    <>
      {texts.map((part, index) => (
        <Part key={index} text={part} />
      ))}
      {more}
    </>
  );
});

/** A code block that goes on in the next part begins again there. */
function withFences(parts: string[]): string[] {
  let fence = "";
  return parts.map((part) => {
    const whole = fence === "" ? part : `${fence}\n${part}`;
    fence = parts.length > 1 ? openFence(whole) : "";
    return whole;
  });
}

const Part = memo(function Part({ text }: { text: string }) {
  const maths = useMaths(text);
  const blocks = useMemo(() => (maths?.renderBlocks ?? renderBlocks)(text), [text, maths]);
  return (
    <div className="markdown">
      {blocks.map((block, index) =>
        block.kind === "code" ? (
          <CodeBlock key={index} language={block.language} text={block.text} />
        ) : (
          <Html key={index} html={block.html} place={maths?.placeFormulas} />
        ),
      )}
    </div>
  );
});

interface HtmlProps {
  html: string;
  place: Maths["placeFormulas"] | undefined;
}

const Html = memo(function Html({ html, place }: HtmlProps) {
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const nodes = sanitize(html);
    element.current?.replaceChildren(place ? place(nodes) : nodes);
  }, [html, place]);
  // The direction of a block is that of its first letter.
  return <div ref={element} dir="auto" />;
});
