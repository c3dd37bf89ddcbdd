export * from "./useAgents";
export * from "./useReload";
export * from "./useSession";
export * from "./useSessions";
export * from "./useSharedConnection";
export * from "./useTasks";
