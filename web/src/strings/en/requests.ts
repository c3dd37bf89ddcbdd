// Requests of the agent: permissions, and their answers in the conversation.

export const permission = (title: string) => `The agent asks permission: ${title}`;
export const needsApproval = "Needs approval";
export const rejectedAt = (time: string) => `Rejected at ${time} if nobody answers`;
export const waits = "Waits until somebody answers";
export const goOn = "Go on?";

export const deletesFiles = "Deletes files";
export const discardsChanges = "Discards changes";
export const overwritesBranch = "Overwrites a remote branch";
export const runsAsRoot = "Runs with the rights of root";
export const overwritesDisk = "Overwrites a disk or a file";
export const runsFromNetwork = "Runs a program from the network";

/** What an option does, by its kind. */
export const kinds: Record<string, string> = {
  allow_once: "Allow once",
  allow_always: "Always allow",
  reject_once: "Reject once",
  reject_always: "Always reject",
};
export const noKind = "The agent does not say what this does";
export const pressAgain = (key: string, option: string) => `Press ${key} again for “${option}”.`;

export const show = "Show the question of the agent";
export const readFirst = "Read the conversation first";
export const more = (count: number) => (count === 1 ? "One more question waits." : `${count} more questions wait.`);
export const asks = "The agent asks";
export const asksSomething = "The agent asks something.";
export const cannotShow = "This question cannot be shown. Load the page again.";
export const theRequest = "The request";

export const asked = "The agent asked a question";
export const waitsForEditor = "waits for the editor";
export const notAnswered = "was not answered";
export const andDone = ", and done";
export const by = (name: string) => ` by ${name}`;
/** By the action of the answer. `by`: empty, or the author. */
export const actions: Record<string, string> = { accept: "accepted", decline: "declined", cancel: "dismissed" };
export const answered = "answered";
export const refused = (by: string) => `refused${by}`;
export const quoted = (option: string) => `“${option}”`;
export const chosen = (option: string, by: string) => `${option} chosen${by}`;
export const chosenByPolicy = (option: string) => `${option} chosen by the gateway's policy`;
export const answeredByPolicy = "answered by the gateway's policy";
export const cancelled = "cancelled with the turn";
export const withdrawn = "withdrawn by the agent";
export const disconnected = "ended, because the editor has disconnected";
export const expired = "ran out unanswered";
