// Names one attempt, so that the gateway carries it out once however often it is sent.

/** `crypto.randomUUID` exists only where the browser calls the origin secure, and a gateway may be reached by plain HTTP. */
export function idempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
