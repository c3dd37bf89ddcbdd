// Actions that a person cannot undo, by the signs that the page can see. No sign does not mean that an action is safe.

import { strings } from "../strings";

export interface Risk {
  words: string;
}

const COMMANDS: [RegExp, string][] = [
  [/(^|[\s;&|(])rm\s+(-\S*\s+)*-\S*[rRf]/, strings.requests.deletesFiles],
  [/(^|[\s;&|(])git\s+(\S+\s+)*?(reset\s+--hard|clean\s+-\S*f|checkout\s+--\s|restore\s)/, strings.requests.discardsChanges],
  [/(^|[\s;&|(])git\s+push\s+(\S+\s+)*(-f|--force)/, strings.requests.overwritesBranch],
  [/(^|[\s;&|(])sudo\s/, strings.requests.runsAsRoot],
  [/(^|[\s;&|(])(mkfs[\s.]|dd\s+(\S+\s+)*of=|shred\s)/, strings.requests.overwritesDisk],
  [/\b(curl|wget)\b[^|;&]*\|\s*(sudo\s+)?(ba|z|da)?sh\b/, strings.requests.runsFromNetwork],
];

/** `kind`: that of the tool call. */
export function riskOf(kind: string | null, command: string | null): Risk | null {
  const found = command === null ? undefined : COMMANDS.find(([sign]) => sign.test(command));
  if (found) return { words: found[1] };
  return kind === "delete" ? { words: strings.requests.deletesFiles } : null;
}
