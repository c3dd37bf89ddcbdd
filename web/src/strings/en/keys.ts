// The keys of the user: the list, a new key, and the secret of a key.

export const open = "Keys…";
export const title = "Keys";
export const here = "This device";
export const neverUsed = "Never used";
export const noExpiry = "Does not expire";

export const add = "New key";
export const rights = "Rights";
export const never = "Never";
export const withThisKey = "With the key of this page";
export const afterDays = (days: number) => `In ${days} days`;
export const create = "Create key";

export const rotate = "Rotate";
export const askRotate = "Replace the secret? The previous one ends at once.";
export const pageKeeps = "This page continues with the new secret.";
export const revoke = "Revoke";
export const askRevoke = "Revoke the key? Its secret ends at once.";
export const signsOut = "It is the key of this page: the page will be signed out.";

export const secretOf = (name: string) => `Secret of ${name}`;
export const once = "Copy the secret now: it is not shown again.";
export const copySecret = "Copy the secret";
export const copyLine = "Copy the line";
export const example = "Use it in a shell: run this line, then paste the secret. The history of the shell does not get it.";
