// The start page.

export const heading = "What should we work on?";
export const form = "Start a session";
export const message = "First message";
export const placeholder = "Describe a task";
export const start = "Start session";
export const startTitle = "Start and send (Enter)";
export const startAndSend = "Start and send";
export const starting = "Starting the agent…";
export const suggestions = "Suggestions";
export const fixTest = "Fix a failing test";
export const reviewChanges = "Review my uncommitted changes";
export const explainRepository = "Explain this repository";
export const adopt = (agent: string) => `Continue a session of ${agent}…`;
export const noAgent = "No agent yet";
export const noAgentHint = "Add an agent to the gateway's configuration. The built-in demo agent needs no model.";

export const recent = "Pick up where you left off";
export const noRecent = "No sessions here yet";

export const mode = "Mode";
export const defaultOf = (option: string) => `Default ${option.toLowerCase()}`;

export const folderLabel = "Folder: ";
export const newFolder = "New folder";
export const folderMenu = "Folder of the session";
export const recentFolders = "Recent";
export const path = "Path of the folder";
export const pathExample = "/path/to/folder";
export const useFolder = "Use this folder";
export const anotherFolder = "Another folder…";
export const roots = "Workspace roots";
export const foldersIn = (path: string) => `Folders in ${path}`;
export const allRoots = "All roots";
export const noFolders = "No folders in it";
