// The suggestions above the message field. The focus stays in the field, which names the active suggestion.

import { useEffect, useRef } from "react";
import type { Typed } from "../model/suggest";
import { strings } from "../strings";
import type { Suggestion, Suggestions } from "./useSuggestions";

export const SUGGESTIONS_ID = "suggestions";

export function suggestionId(index: number): string {
  return `${SUGGESTIONS_ID}-${index}`;
}

export function SuggestionList({ suggestions, onPick }: { suggestions: Suggestions; onPick(suggestion: Suggestion, typed: Typed): void }) {
  const { typed, all, active } = suggestions;
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    list.current?.children[active]?.scrollIntoView({ block: "nearest" });
  }, [active]);
  if (!typed || all.length === 0) return null;
  return (
    <ul className="suggestions" id={SUGGESTIONS_ID} ref={list} role="listbox" tabIndex={0} aria-label={typed.kind === "command" ? strings.composer.commandsOfAgent : strings.common.files}>
      {all.map((suggestion, index) => (
        <li
          key={suggestion.key}
          id={suggestionId(index)}
          role="option"
          aria-selected={index === active}
          // The field keeps the focus.
          onMouseDown={(event) => event.preventDefault()}
          onClick={() => onPick(suggestion, typed)}
        >
          <code>{suggestion.words}</code> {suggestion.hint && <em>{suggestion.hint}</em>} <span>{suggestion.about}</span>
        </li>
      ))}
    </ul>
  );
}
