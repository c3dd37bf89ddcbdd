// A session: its header and menu, its connection, and its end.

export const panel = "Panel";
export const panelTitle = "Panel (Alt+P)";
export const details = "Details";
export const closed = "This session is closed. Its history stays readable.";
export const reopen = "Open it again";
/** In place of the title. */
export const loading = "Loading…";
export const unknown = "Session not found";
export const deleted = "This session was deleted.";
export const startNew = "Start a new session";

export const menu = "More about this session";
export const menuName = "This session";
export const copyLink = "Copy the link";
export const saveMarkdown = "Download as Markdown";
export const saveJson = "Download as JSON";
export const rename = "Rename";
export const fork = "Fork";
export const close = "Close the session";

export const newConversation = "New conversation";
/** What the agent loses, and what stays. */
export const newConversationLoses =
  "The agent forgets everything that was said and done in this session, also if it could still load it. The history on this page and the files stay.";
export const newConversationBegin = "Forget and begin";

export const retry = (seconds: number) => `Trying again ${seconds > 0 ? `in ${seconds} s` : "now"}.`;
export const tryNow = "Try now";
export const connecting = "Connecting…";

export const usage = (used: string, size: string) => `${used} of ${size} tokens of context`;
export const share = (percent: number) => `${percent} % of context`;

export const asks = (title: string) => `The agent asks: ${title}.`;
export const aQuestion = "a question";
export const turnFailed = (reason: string) => `The turn failed: ${reason}.`;
export const unknownReason = "unknown reason";

/** The conversation as a Markdown file. */
export const exportAgent = (agent: string) => `Agent: ${agent}`;
export const exportFolder = (folder: string) => `Folder: \`${folder}\``;
export const exportYou = "You";
export const exportAgentHeading = "Agent";
export const exportName = "session";

/** Beside the keys that do it. */
export const toQuestion = "To the question";
export const answer = "Answer";
