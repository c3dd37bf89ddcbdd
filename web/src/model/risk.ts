// Actions that a person cannot undo, by the signs that the page can see. No sign does not mean that an action is safe.

export interface Risk {
  words: string;
}

const COMMANDS: [RegExp, string][] = [
  [/(^|[\s;&|(])rm\s+(-\S*\s+)*-\S*[rRf]/, "Deletes files"],
  [/(^|[\s;&|(])git\s+(\S+\s+)*?(reset\s+--hard|clean\s+-\S*f|checkout\s+--\s|restore\s)/, "Discards changes"],
  [/(^|[\s;&|(])git\s+push\s+(\S+\s+)*(-f|--force)/, "Overwrites a remote branch"],
  [/(^|[\s;&|(])sudo\s/, "Runs with the rights of root"],
  [/(^|[\s;&|(])(mkfs[\s.]|dd\s+(\S+\s+)*of=|shred\s)/, "Overwrites a disk or a file"],
  [/\b(curl|wget)\b[^|;&]*\|\s*(sudo\s+)?(ba|z|da)?sh\b/, "Runs a program from the network"],
];

/** `kind`: that of the tool call. */
export function riskOf(kind: string | null, command: string | null): Risk | null {
  const found = command === null ? undefined : COMMANDS.find(([sign]) => sign.test(command));
  if (found) return { words: found[1] };
  return kind === "delete" ? { words: "Deletes files" } : null;
}
