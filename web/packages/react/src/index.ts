export * from "./useAgents.js";
export * from "./useReload.js";
export * from "./useSession.js";
export * from "./useSessions.js";
export * from "./useSharedConnection.js";
export * from "./useTasks.js";
