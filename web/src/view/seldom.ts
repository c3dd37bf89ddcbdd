// The parts that are loaded when a person opens one of them.

export { AdminPage } from "./admin/AdminPage";
export { AgentSessions } from "./AgentSessions";
export { InboxPage } from "./InboxPage";
export { InstallableAgents } from "./InstallableAgents";
export { KeyboardHelp } from "./KeyboardHelp";
export { TasksPage } from "./TasksPage";
