// The public part of the client.

export * from "./client.js";
export * from "./event.js";
export type { CallOptions, ConditionalCall, RepeatableCall, WaitingCall } from "./http.js";
export * from "./idempotency.js";
export * from "./list.js";
export * from "./problem.js";
export * from "./session.js";
export type { FileQuery, PageQuery, StreamCall, WriteFileCall } from "./sessionRoutes.js";
export { known, type Known, type Open, type Unlisted } from "./open.js";
export type { components } from "./schema.js";
export { logBefore } from "./tail.js";
export * from "./types.js";
export * from "./log/backoff.js";
export * from "./log/cursor.js";
export * from "./log/eventsOf.js";
export * from "./log/follow.js";
export * from "./log/leader.js";
export * from "./log/messages.js";
export * from "./log/shared.js";
export * from "./log/sharedConnection.js";
export * from "./log/sse.js";
export * from "./state/fold.js";
export { requestItem } from "./state/request.js";
export * from "./state/state.js";
export { commands as readCommands, configOptions as readConfigOptions, modes as readModes } from "./state/offers.js";
