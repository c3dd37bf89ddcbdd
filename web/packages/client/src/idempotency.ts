// Names one attempt, so that the gateway carries it out once however often it is sent.

import { mayHaveHappened } from "./problem.js";

/** `crypto.randomUUID` exists only where the browser calls the origin secure, and a gateway may be reached by plain HTTP. */
export function idempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Sends what a person may send again after an error. If the gateway may have carried out the failed request, the same content is
 * sent under the same key, so that it is carried out once. One object for each place that sends, for example a message field.
 */
export class Attempt {
  #open: { content: string; key: string } | null = null;

  async run<C, T>(content: C, send: (content: C, call: { idempotencyKey: string }) => Promise<T>): Promise<T> {
    const text = JSON.stringify(content);
    const { key } = (this.#open = this.#open?.content === text ? this.#open : { content: text, key: idempotencyKey() });
    try {
      const result = await send(content, { idempotencyKey: key });
      this.#open = null;
      return result;
    } catch (error) {
      if (!mayHaveHappened(error)) this.#open = null;
      throw error;
    }
  }
}
