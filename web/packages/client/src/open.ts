// How types of the document become types of the client.

/**
 * A type of the API as a client has to read it: each enum also accepts strings that the document does not list, because within
 * /v1 the gateway may add values. `type` stays closed, because it selects the member of a union.
 */
export type Open<T> = T extends string
  ? string extends T
    ? T
    : T | (string & {})
  : T extends readonly (infer E)[]
    ? Open<E>[]
    : T extends object
      ? { [K in keyof T]: K extends "type" ? T[K] : Open<T[K]> }
      : T;

declare const unlisted: unique symbol;

/** A string that the document does not list. No literal compares with it. */
export interface Unlisted {
  readonly [unlisted]: true;
}

/** The values that the document lists for a string of the API. */
export type Known<T> = T extends string ? (string extends T ? Unlisted : T) : T;

/**
 * A string of the API for a comparison with the values that the document lists. A comparison with any other value does not compile:
 * `known(file.type) === "directory"` is an error, because the document says `folder`.
 */
export function known<T extends string | null | undefined>(value: T): Known<T> {
  return value as Known<T>;
}
