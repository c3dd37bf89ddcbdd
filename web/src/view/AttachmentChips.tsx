// The attachments of the message that a person writes, and why one was not added.

import { size } from "../model/attachments";
import { strings } from "../strings";
import { visible } from "@acp-gateway/client/read";
import { IMAGE } from "./addresses";
import { Icon } from "./Icon";
import type { Attachments } from "./useAttachments";

export function AttachmentChips({ attachments }: { attachments: Attachments }) {
  const { all, problem, remove } = attachments;
  return (
    <>
      {all.length > 0 && (
        <ul className="chips" aria-label={strings.composer.attachments}>
          {all.map(({ key, name, bytes, block }) => (
            <li key={key} className="chip">
              <Preview src={block.type === "image" ? `data:${block.mimeType};base64,${block.data}` : ""} />
              <span className="chip-name">{visible(name)}</span>
              <span className="chip-size">{size(bytes)}</span>
              <button className="icon-button" type="button" aria-label={strings.composer.removeAttachment(visible(name))} onClick={() => remove(key)}>
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      {problem !== null && (
        <p className="chips-problem" role="alert">
          {visible(problem)}
        </p>
      )}
    </>
  );
}

function Preview({ src }: { src: string }) {
  return IMAGE.test(src) ? <img className="chip-picture" src={src} alt="" /> : <Icon name="file" />;
}
