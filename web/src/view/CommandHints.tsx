// The agent's slash commands, while one is being written.

import type { Command } from "../api/types";
import { visible } from "../model/words";

interface Props {
  commands: Command[];
  text: string;
  onPick(command: string): void;
}

const MOST = 8;

export function CommandHints({ commands, text, onPick }: Props) {
  const written = /^\/(\S*)$/.exec(text)?.[1];
  if (written === undefined) return null;
  const fitting = commands.filter((command) => command.name.startsWith(written)).slice(0, MOST);
  if (fitting.length === 0 || (fitting.length === 1 && fitting[0]!.name === written)) return null;
  return (
    <ul className="commands" aria-label="Commands of the agent">
      {fitting.map((command) => (
        <li key={command.name}>
          <button type="button" onClick={() => onPick(command.name)}>
            <code>/{visible(command.name)}</code> <span>{command.description}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}
