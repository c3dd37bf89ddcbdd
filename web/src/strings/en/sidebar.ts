// The list of sessions, the settings, the keyboard shortcuts and the notifications.

export const name = "Sessions";
export const openList = "Open the list of sessions";
export const closeList = "Close the list of sessions";
export const skip = "Skip to the conversation";

export const search = "Search titles";
export const searchName = "Search sessions";
export const noSessions = "No sessions yet.";
export const noMatch = "No session matches.";
export const groups = { needsYou: "Needs you", today: "Today", thisWeek: "This week", older: "Older" };

export const isNew = "(new)";
export const rename = "Rename";
export const renameOne = (title: string) => `Rename ${title}`;
export const remove = "Delete";
export const removeOne = (title: string) => `Delete ${title}`;
export const title = "Title of the session";
export const askRemove = "Delete this session?";
export const askHistory = "Delete with all its history?";
export const keep = "Keep";

export const waiting = "Needs an answer";
export const working = "Working";
export const closed = "Closed";
export const failed = "Failed";
export const finished = "Finished";

export const settings = "Settings";
export const theme = "Theme";
export const themes = { system: "System", light: "Light", dark: "Dark" };
export const density = "Density";
export const densities = { comfortable: "Comfortable", compact: "Compact" };
export const apiDocs = "API docs";
export const signOut = "Sign out";

export const noticesBlocked = "The browser blocks notifications";
export const noticesOn = "Notifications on";
export const noticesOff = "Notify me";
export const noticeWaiting = "Waits for your answer";
/** By the outcome of the turn. */
export const noticeEnds: Record<string, string> = { completed: "Finished", failed: "Failed" };

export const shortcuts = "Keyboard shortcuts";
export const shortcutsTitle = "Keyboard shortcuts (?)";
export const everywhere = "Everywhere";
export const nextWaiting = "Next session that needs you";
export const searchAndSwitch = "Search and switch sessions";
export const togglePanel = "Show or hide the panel";
export const theseShortcuts = "These shortcuts";
export const inMessage = "Message";
export const sendOrQueue = "Send, or queue while the agent works";
export const newLine = "New line";
export const stopAgent = "Stop the agent";
export const earlierMessage = "Earlier message";
export const inApproval = "Approval";
export const chooseOption = "Choose an option, in the question";
export const chooseAgain = "Confirm “always”, or an option with a risk";
export const toApproval = "From the message to the question";
