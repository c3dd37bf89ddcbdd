// The panel beside the conversation.

export const tabs = { plan: "Plan", changes: "Changes", files: "Files", terminals: "Terminals", events: "Events" };
export const close = "Close the panel";
export const closeTitle = "Close the panel (Alt+P)";

export const notLoaded = "The earlier part of the conversation is not loaded.";
export const noPlan = "The agent has made no plan yet.";
export const completedSteps = "Completed steps";

export const comparing = "Comparing the folder…";
export const since = (time: string) => `Since ${time}, when the session started`;
export const nothingChanged = "Nothing has changed.";
export const moreChanges = "There are more changes than the list shows.";
export const writeComments = (count: number) => (count === 1 ? "Write the comment as a message" : `Write ${count} comments as a message`);
/** By the kind of the change. */
export const changeKinds: Record<string, string> = { added: "new", deleted: "deleted" };
export const moreAbout = (path: string) => `More about ${path}`;
export const thisFile = "This file";
export const deleteNewFile = "Delete this new file";
export const revertFile = "Revert the whole file";
export const askDelete = "Delete this file, which did not exist before?";
export const askRevert = "Undo all changes to this file?";
export const confirmDelete = "Delete";
export const confirmRevert = "Revert";
export const keepFile = "Keep";
export const noText = "This file is no text.";
export const tooLarge = "This file is too large to be shown.";
export const onlyLineEnd = "Only the end of the last line differs.";
export const lineNumber = (line: number) => `Line ${line}`;
export const revert = "Revert";
export const onlyBeginning = "Only the first 256 KiB are shown.";
export const howToComment = "Press a line to comment on it.";
export const commentOnLine = "Comment on this line";
export const removeComment = "Remove the comment";
export const comment = "Comment on the line";
export const addComment = "Add the comment";

/** The message with the comments. */
export const commentsHead = (count: number) => `${count === 1 ? "A comment" : "Comments"} on your changes:`;
/** `file`: as a message names it. */
export const commentAt = (file: string, place: string) => `In ${file}, ${place}:`;
export const removedLine = (line: number) => `the removed line ${line}`;
export const line = (line: number) => `line ${line}`;
export const emptyLine = "(empty line)";

export const loading = "Loading…";
export const filesOfSession = "Files of the session";
export const filesIn = (path: string) => `Files in ${path}`;
export const emptyFolder = "This folder is empty.";
export const allFiles = "All files";
export const contentOf = (path: string) => `Content of ${path}`;

export const noTerminals = "No command has run yet.";

export const filterEvents = "Filter the events by their type";
export const filterByType = "Filter by type";
export const event = (id: string | undefined) => `Event ${id}`;
export const noEvent = "No event matches.";
export const lastEvents = (shown: number, all: number) => `The last ${shown} of ${all} events. The menu of the session saves all of them as JSON.`;
