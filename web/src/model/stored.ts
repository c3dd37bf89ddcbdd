// Texts that this browser keeps. A browser without storage keeps none.

const PREFIX = "acp-gateway.";

export function load(name: string): string | null {
  try {
    return localStorage.getItem(PREFIX + name);
  } catch {
    return null;
  }
}

/** Null removes the text. */
export function save(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // It is not kept.
  }
}
