// The only component that inserts DOM nodes which React did not create. All of them come from `sanitize`.

import { memo, useLayoutEffect, useMemo, useRef } from "react";
import { renderBlocks } from "./renderBlocks";
import { sanitize } from "./sanitize";

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => renderBlocks(text), [text]);
  return (
    <div className="markdown">
      {blocks.map((html, index) => (
        <Block key={index} html={html} />
      ))}
    </div>
  );
});

const Block = memo(function Block({ html }: { html: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => place.current?.replaceChildren(sanitize(html)), [html]);
  return <div ref={place} />;
});
