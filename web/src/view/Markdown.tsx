// The only component that inserts DOM nodes which React did not create. All of them come from `sanitize`.

import { memo, useLayoutEffect, useMemo, useRef } from "react";
import { CodeBlock } from "./CodeBlock";
import { renderBlocks } from "./renderBlocks";
import { sanitize } from "./sanitize";

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => renderBlocks(text), [text]);
  return (
    <div className="markdown">
      {blocks.map((block, index) =>
        block.kind === "code" ? (
          <CodeBlock key={index} language={block.language} text={block.text} />
        ) : (
          <Html key={index} html={block.html} />
        ),
      )}
    </div>
  );
});

const Html = memo(function Html({ html }: { html: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => place.current?.replaceChildren(sanitize(html)), [html]);
  return <div ref={place} />;
});
