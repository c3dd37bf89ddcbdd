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
