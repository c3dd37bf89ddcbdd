// The parts that are loaded when a person opens one of them.

export { AddAgents } from "./AddAgents";
export { AdminPage } from "./admin/AdminPage";
export { AgentSessions } from "./AgentSessions";
export { InboxPage } from "./InboxPage";
export { KeyboardHelp } from "./KeyboardHelp";
export { KeysDialog } from "./KeysDialog";
export { ShareDialog } from "./ShareDialog";
export { SignIn } from "./signin/SignIn";
export { TasksPage } from "./TasksPage";
