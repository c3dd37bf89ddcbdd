// The end of a list that may have more in the earlier part of the conversation.

import { strings } from "../../strings";

export function LoadEarlier({ onLoad }: { onLoad(): void }) {
  return (
    <div className="panel-empty">
      <p>{strings.panel.notLoaded}</p>
      <button className="button small" type="button" onClick={onLoad}>
        {strings.transcript.showEarlier}
      </button>
    </div>
  );
}
