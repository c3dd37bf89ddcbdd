// Tables whose keys come from agents.

/** The entry of a table with this key. Unlike an index, it does not find the members that every object has. */
export function lookup<T>(table: Record<string, T> | undefined, key: unknown): T | undefined {
  return table && Object.hasOwn(table, String(key)) ? table[String(key)] : undefined;
}
