// Changes to the lists of a session's state. A list is never changed after its batch, so that the page can compare it by
// identity. Within a batch, a list is copied once and then changed in place: a copy for each event of a long turn would make
// the fold quadratic.

/** The lists that the current batch made. Only the batch has them. */
let made: WeakSet<readonly unknown[]> | null = null;

/** Runs a batch. */
export function batch<T>(run: () => T): T {
  if (made) return run();
  made = new WeakSet();
  try {
    return run();
  } finally {
    made = null;
  }
}

export function replaced<T>(list: T[], index: number, value: T): T[] {
  const own = owned(list);
  own[index] = value;
  return own;
}

export function added<T>(list: T[], value: T): T[] {
  const own = owned(list);
  own.push(value);
  return own;
}

function owned<T>(list: T[]): T[] {
  if (made?.has(list)) return list;
  const copy = list.slice();
  made?.add(copy);
  return copy;
}
