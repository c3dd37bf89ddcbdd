// Sessions that users share: the dialog, the access to a session of another user, and its end.

export const share = "Share…";
export const title = "Share this session";
export const people = "People with access";
export const owner = "Owner";
export const you = (name: string) => `${name} (you)`;
export const allUsers = (tenant: string) => `All users of ${tenant}`;
export const nobody = "Only the owner has access.";
/** By the level of access. Each level includes the ones before it. */
export const levels: Record<string, string> = { read: "Can read", prompt: "Can send messages", approve: "Can answer requests", own: "Full access" };
export const noAccess = "No access";
export const accessOf = (name: string) => `Access of ${name}`;
export const removeOne = (name: string) => `Remove ${name}`;
export const kind = "Share with";
export const kinds = { user: "A person", group: "A group" };
export const group = (name: string) => `Group ${name}`;
export const name = "Name";
export const access = "Access";
export const add = "Add";
export const hint = "Each access includes those before it. Full access also includes renaming, deleting and sharing.";
export const changed = (name: string, level: string) => `${name}: ${level}`;

export const noUser = (name: string) => `There is no user “${name}”. A user needs a key of this gateway.`;
export const noGroup = (name: string) => `There is no group “${name}” with a member in your tenant.`;
export const notAName = "A name has only letters, digits and . _ @ -";
export const isOwner = (name: string) => `${name} owns the session.`;
export const tooMany = "The session is shared with 64 users and groups already. Remove one first.";
export const forbidden = "Your key or your own access does not permit this.";

export const withMe = "Shared with me";
export const by = (name: string, can: string) => `Shared by ${name}: ${can}`;
/** By the level of access. */
export const youCan: Record<string, string> = { read: "you can read", prompt: "you can send messages", approve: "you can answer requests", own: "you have full access" };
export const mayNotPrompt = "Your access to this session does not include messages.";
export const mayNotAnswer = "Your access to this session does not include answers.";
export const lost = "You no longer have access to this session, or it was deleted.";
