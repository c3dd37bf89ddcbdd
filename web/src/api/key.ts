// Where the key lives in this browser.
//
// By default it stays in sessionStorage: only this tab has it, and it is gone when the tab closes. An origin on this machine
// is a port number, and tomorrow another program may listen on the same port: what lies in localStorage would be handed to it.
// Keeping the key on the device is therefore something that the person has to ask for. A cookie is never used, because cookies
// are shared by all ports of a host.

const NAME = "acp-gateway.key";

/** Takes the key out of the address (`#key=...`), so that it stays neither in the history nor in a screenshot. */
export function takeKeyFromAddress(): string | null {
  const fragment = location.hash.slice(1);
  if (!fragment.startsWith("key=")) return null;
  const key = new URLSearchParams(fragment).get("key");
  history.replaceState(history.state, "", `${location.pathname}${location.search}#/`);
  return key ? key.trim() : null;
}

export function loadKey(): string | null {
  return read(() => sessionStorage.getItem(NAME)) ?? read(() => localStorage.getItem(NAME));
}

export function isKept(): boolean {
  return read(() => localStorage.getItem(NAME)) !== null;
}

export function saveKey(key: string, keep: boolean): void {
  write(() => sessionStorage.setItem(NAME, key));
  write(() => (keep ? localStorage.setItem(NAME, key) : localStorage.removeItem(NAME)));
}

export function forgetKey(): void {
  write(() => sessionStorage.removeItem(NAME));
  write(() => localStorage.removeItem(NAME));
}

/** A browser may refuse storage altogether; the page then works until it is reloaded. */
function read(get: () => string | null): string | null {
  try {
    return get();
  } catch {
    return null;
  }
}

function write(set: () => void): void {
  try {
    set();
  } catch {
    // See `read`.
  }
}
