// The public part of the client.

export * from "./client";
export * from "./event";
export type { CallOptions, ConditionalCall, RepeatableCall, WaitingCall } from "./http";
export * from "./idempotency";
export * from "./problem";
export * from "./session";
export type { FileQuery, PageQuery, StreamCall, WriteFileCall } from "./sessionRoutes";
export * from "./types";
export * from "./log/backoff";
export * from "./log/cursor";
export * from "./log/eventsOf";
export * from "./log/follow";
export * from "./log/leader";
export * from "./log/messages";
export * from "./log/shared";
export * from "./log/sharedConnection";
export * from "./log/sse";
export * from "./state/fold";
export * from "./state/state";
export { commands as readCommands, configOptions as readConfigOptions, modes as readModes } from "./state/offers";
