// The storage of the key in this browser.
//
// By default the key is in sessionStorage: only this tab has it, until the tab closes. An origin on this machine is a
// port number, and another program may use the same port later. It could read localStorage. Therefore the page stores
// the key on the device only on request. It never uses a cookie, because all ports of a host share cookies.

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

/** Keeps the key of this tab on the device, or in this tab only. */
export function keepKey(keep: boolean): void {
  const key = loadKey();
  if (key !== null) saveKey(key, keep);
}

/** `refused`: the key that the gateway refused. If another tab has rotated it, the device keeps the new secret. */
export function forgetKey(refused: string | null): void {
  write(() => sessionStorage.removeItem(NAME));
  if (refused === null || loadKey() === refused) write(() => localStorage.removeItem(NAME));
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
