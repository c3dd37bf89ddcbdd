// Asks before the agent begins a new conversation in the session, and says what is lost.

import { strings } from "../strings";
import { Dialog } from "./Dialog";

interface Props {
  onBegin(): Promise<boolean>;
  onClose(): void;
}

export function NewConversationDialog({ onBegin, onClose }: Props) {
  return (
    <Dialog title={strings.session.newConversation} onClose={onClose}>
      <p>{strings.session.newConversationLoses}</p>
      <div className="dialog-actions">
        <button className="button primary" type="button" onClick={() => void onBegin().then((done) => done && onClose())}>
          {strings.session.newConversationBegin}
        </button>
        <button className="button" type="button" onClick={onClose}>
          {strings.common.cancel}
        </button>
      </div>
    </Dialog>
  );
}
