// ACP content: text, images and resources. `plain` shows text without Markdown.

import { memo } from "react";
import type { ContentBlock } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { resourceName } from "../model/words";
import { strings } from "../strings";
import { IMAGE } from "./addresses";
import { Markdown } from "./Markdown";
import { useParts, Verbatim } from "./Parts";
import { useShortPath } from "./workingFolder";

export const ContentBlocks = memo(function ContentBlocks({ blocks, plain = false }: { blocks: ContentBlock[]; plain?: boolean }) {
  return (
    <>
      {blocks.map((block, index) => (
        <Block key={index} block={block} plain={plain} />
      ))}
    </>
  );
});

function Plain({ text }: { text: string }) {
  const { parts, more } = useParts(text);
  return (
    <>
      {/* React joins no texts, and a paragraph for each part would add lines. */}
      <p className="plain" dir="auto">
        {parts.join("")}
      </p>
      {more}
    </>
  );
}

/** The path of a file, without the session's folder, or the name of an attachment. */
function ResourceName({ uri }: { uri: string }) {
  return useShortPath(visible(resourceName(uri)));
}

function Block({ block, plain }: { block: ContentBlock; plain: boolean }) {
  switch (block.type) {
    case "text":
      return plain ? <Plain text={block.text ?? ""} /> : <Markdown text={block.text ?? ""} />;
    case "image": {
      const src = `data:${block.mimeType};base64,${block.data}`;
      return IMAGE.test(src) ? (
        <img className="picture" src={src} alt={strings.content.picture} />
      ) : (
        <p className="reference">{strings.content.pictureOf(visible(block.mimeType ?? strings.content.unknownType))}</p>
      );
    }
    case "audio":
      return <p className="reference">{strings.content.soundOf(visible(block.mimeType ?? strings.content.unknownType))}</p>;
    case "resource_link":
      return <p className="reference">{visible(block.title ?? block.name ?? block.uri ?? strings.content.reference)}</p>;
    case "resource":
      return (
        <details className="resource">
          <summary>
            <ResourceName uri={block.resource?.uri ?? strings.content.attachedText} />
          </summary>
          {block.resource?.text !== undefined && <Verbatim label={strings.content.attachedText} text={block.resource.text} />}
        </details>
      );
    default:
      return <p className="reference">{strings.content.unknownOf(visible(block.type))}</p>;
  }
}
