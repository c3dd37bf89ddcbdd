// The message field: its buttons, attachments, suggestions and options.

export const form = "Write a message";
export const message = "Message";
export const placeholder = (hasCommands: boolean, hasFiles: boolean) => `Write a message${hasCommands ? ", / for commands" : ""}${hasFiles ? ", @ for files" : ""}`;
export const placeholderRunning = "Write the next message: it waits in the queue";
export const sendTitle = "Send (Enter)";
export const queue = "Queue";
export const queueTitle = "Queue (Enter)";
export const stop = "Stop";
export const stopTitle = "Stop (Esc)";

export const attach = "Attach files";
export const attachments = "Attachments";
export const removeAttachment = (name: string) => `Remove ${name}`;
export const fileTooLarge = (name: string) => `${name} has more than 7 MiB. Put it into the folder of the session, and write @ and its path.`;
export const messageTooLarge = (name: string) => `The attachments of a message have at most 7 MiB. ${name} was not added.`;
export const unreadable = (name: string) => `${name} cannot be read.`;
export const noPictures = (name: string) => `The agent does not accept pictures (${name}).`;
export const noSounds = (name: string) => `The agent does not accept sounds (${name}).`;
export const noFiles = (name: string) => `The agent does not accept files of this type (${name}).`;

export const commandsOfAgent = "Commands of the agent";
export const folder = "folder";

export const mode = "Mode";
export const moreOptions = "More options";
export const options = "Options of the agent";
export const deniedMode = "The operator of this gateway denies this mode.";
export const denied = (name: string) => `${name} (denied)`;
