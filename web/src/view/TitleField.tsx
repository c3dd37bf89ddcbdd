// The field for the title of a session.

import { strings } from "../strings";

/** The gateway's limit for a title, in characters. */
const MAX_TITLE = 512;

export function TitleField({ className, value, onChange }: { className: string; value: string; onChange(value: string): void }) {
  return (
    <input
      className={className}
      dir="auto"
      aria-label={strings.sidebar.title}
      autoFocus
      maxLength={MAX_TITLE}
      value={value}
      onChange={(event) => onChange(event.target.value)}
      onFocus={(event) => event.target.select()}
    />
  );
}
