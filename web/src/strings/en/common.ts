// Words that several places of the page share.

export const cancel = "Cancel";
export const commands = "Commands";
export const copied = "Copied";
export const copy = "Copy";
export const copyFailed = "Not permitted";
export const dismiss = "Dismiss";
export const done = "Done";
export const files = "Files";
export const folderAbove = "Folder above";
export const newSession = "New session";
export const openSession = "Open session";
export const output = "Output";
export const outputOfAgent = "Error output of the agent";
export const partFailed = "This part cannot be shown.";
export const plan = "Plan";
export const save = "Save";
export const send = "Send";
export const showMore = "Show more";
export const untitled = "Untitled session";

export const bytes = (count: number) => `${count} B`;
export const kibibytes = (count: number) => `${count} KiB`;
export const mebibytes = (count: string) => `${count} MiB`;
export const gibibytes = (count: string) => `${count} GiB`;
export const tryAgain = "Try again";
