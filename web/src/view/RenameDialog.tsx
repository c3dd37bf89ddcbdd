// The title of a session, in a dialog.

import { useState } from "react";
import { strings } from "../strings";
import { Dialog } from "./Dialog";
import { TitleField } from "./TitleField";

interface Props {
  title: string;
  onRename(title: string): Promise<boolean>;
  onClose(): void;
}

export function RenameDialog({ title, onRename, onClose }: Props) {
  const [text, setText] = useState(title);
  return (
    <Dialog title={strings.session.rename} onClose={onClose}>
      <form
        className="dialog-form"
        onSubmit={(event) => {
          event.preventDefault();
          void onRename(text.trim()).then((done) => done && onClose());
        }}
      >
        <TitleField className="field-box" value={text} onChange={setText} />
        <div className="dialog-actions">
          <button className="button primary" type="submit" disabled={text.trim() === ""}>
            {strings.common.save}
          </button>
          <button className="button" type="button" onClick={onClose}>
            {strings.common.cancel}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
