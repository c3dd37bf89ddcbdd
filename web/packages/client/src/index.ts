// The public part of the client.

export * from "./client";
export * from "./event";
export * from "./idempotency";
export * from "./problem";
export * from "./session";
export * from "./types";
export * from "./log/backoff";
export * from "./log/cursor";
export * from "./log/follow";
export * from "./log/leader";
export * from "./log/messages";
export * from "./log/shared";
export * from "./log/sharedConnection";
export * from "./log/sse";
export * from "./state/fold";
export * from "./state/state";
