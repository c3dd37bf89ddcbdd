// A choice of a person that this browser keeps. A browser without storage keeps it until the page is closed.

import { load, save } from "./stored";

export class Choice<T extends string> {
  readonly #name: string;
  readonly #values: readonly T[];
  readonly #listeners = new Set<() => void>();
  #value: T;

  /** The first value is the default. */
  constructor(name: string, values: readonly [T, ...T[]]) {
    this.#name = name;
    this.#values = values;
    const stored = load(this.#name);
    this.#value = values.find((value) => value === stored) ?? values[0];
  }

  readonly value = (): T => this.#value;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  choose(value: T): void {
    this.#value = value;
    save(this.#name, value === this.#values[0] ? null : value);
    this.#listeners.forEach((listener) => listener());
  }
}
