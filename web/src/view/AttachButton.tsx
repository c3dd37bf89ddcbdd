// Opens the browser's choice of files.

import { useRef } from "react";
import { strings } from "../strings";
import { Icon } from "./Icon";

export function AttachButton({ onPick }: { onPick(files: File[]): void }) {
  const field = useRef<HTMLInputElement>(null);
  return (
    <>
      <button className="icon-button" type="button" aria-label={strings.composer.attach} title={strings.composer.attach} onClick={() => field.current?.click()}>
        <Icon name="plus" />
      </button>
      <input
        ref={field}
        className="hidden"
        type="file"
        multiple
        tabIndex={-1}
        aria-hidden="true"
        onChange={(event) => {
          onPick([...(event.target.files ?? [])]);
          event.target.value = "";
        }}
      />
    </>
  );
}
