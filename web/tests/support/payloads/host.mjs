/** The target of every request that a payload tries to send. The name does not exist (RFC 2606). */
export const HOST = "https://stranger.invalid";
