// The only component that inserts DOM nodes which React did not create. All of them come from `sanitize`,
// and formulas from the part that `useMaths` loads.

import { memo, useLayoutEffect, useMemo, useRef } from "react";
import type { Maths } from "../maths/maths";
import { CodeBlock } from "./CodeBlock";
import { renderBlocks } from "./renderBlocks";
import { sanitize } from "./sanitize";
import { useMaths } from "./useMaths";

export const Markdown = memo(function Markdown({ text }: { text: string }) {
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
  return <div ref={element} />;
});
