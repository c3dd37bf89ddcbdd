// The conversation: turns, and what has happened since the last visit.

export const name = "Conversation";
export const messages = "Messages";
export const loading = "Loading the conversation…";
export const cut = "Earlier steps of this turn are not loaded.";
export const showEarlier = "Show earlier messages";
export const loadingEarlier = "Loading earlier messages…";
export const earlierFailed = "Earlier messages could not be loaded.";
export const notPrinted = "Earlier messages are not part of this print.";
export const newSince = (time: string) => `New since ${time}`;
export const lastVisit = "your last visit";
export const jump = "Jump to the latest";
export const ready = (agent: string | null) => (agent ? `${agent} is ready.` : "Ready.");
export const readyHint = "Write below what you want done. Enter sends, Shift+Enter starts a new line.";

export const turn = "Turn";
export const betweenTurns = "Between turns";
export const youWrote = "You wrote: ";
export const yourMessage = "Your message";
export const editAndSend = "Edit and send again";
export const copyTurnLink = "Copy the link to this turn";
export const copyAnswer = "Copy the answer";
export const wasAsked = "It was asked";
export const answered = "It answered";
export const waitingForYou = "Waiting for you";
export const working = "Working…";
/** After the name of the key. */
export const stops = "stops";
export const writeAgain = "Write it again";
export const thoughtFor = (duration: string) => `Thought for ${duration}`;

/** By the stop reason of the turn. */
export const stopReasons: Record<string, string> = {
  end_turn: "Finished",
  cancelled: "Stopped",
  refusal: "The agent declined to go on",
  max_tokens: "Stopped at the model's length limit",
  max_turn_requests: "Stopped at the limit of model calls in one turn",
};
/** By the cause of a cancel. A person needs no explanation of a stop that a person asked for. */
export const cancelCauses: Record<string, string> = {
  disconnect: "the client of a chat disconnected",
  silence: "the agent sent nothing for too long",
  tool_call_silence: "the agent sent nothing for too long during a tool call",
  deadline: "the deadline of the task passed",
  budget: "the task used its token budget",
  drain: "the gateway was stopped",
};
export const stoppedBecause = (stopped: string, cause: string) => `${stopped}: ${cause}`;
export const otherStop = (reason: string) => `Ended (${reason})`;
export const noReason = "no reason given";

/** Why an agent lost the context, by the reason of `session.attached`. */
export const lost: Record<string, string> = {
  not_found: "The agent no longer has this session.",
  unsupported: "This agent cannot load earlier sessions.",
  rejected_session: "The agent rejected this session after it had loaded it.",
  not_restored: "The agent refused to load this session several times.",
  requested: "A new conversation was requested.",
  imported: "This session was imported from another gateway.",
};
export const otherLost = "The agent could not continue the session.";
export const contextLost = (why: string) => `${why} It does not remember what came before.`;
export const privilegedMode = (mode: string) => `The agent switched to the mode “${mode}”, which nobody can select here. It may act without asking.`;
export const agentExited = "The agent's process ended. It starts again with the next message.";
export const agentDisconnected = "The connection to the agent's host was lost. The next message connects again.";

/** By the status of the compaction. */
export const compactions: Record<string, string> = {
  in_progress: "The agent sums up the conversation to make room…",
  completed: "The agent summed up the conversation to make room.",
  failed: "The agent could not sum up the conversation.",
  cancelled: "The agent stopped summing up the conversation.",
};
export const otherCompaction = (status: string) => `Summing up: ${status}`;

export const away = "While you were away";
export const turnsFinished = (count: number) => (count === 1 ? "Finished a turn" : `Finished ${count} turns`);
export const turnsFailed = (count: number) => (count === 1 ? "A turn failed" : `${count} turns failed`);
export const filesChanged = (count: number) => (count === 1 ? "Changed a file" : `Changed ${count} files`);
export const theGateway = "The gateway";
export const answeredBy = (by: string, option: string, title: string) => `${by} answered “${option}”: ${title}`;
export const needsAnswer = (title: string) => `Needs an answer: ${title}`;

export const planDone = (done: number, all: number) => `${done} of ${all} done`;
export const stepInProgress = "in progress";
