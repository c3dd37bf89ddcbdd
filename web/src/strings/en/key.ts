// The key of the page: the form for it, a link that brings another one, and its rights.

export const refused = "The gateway refused this key.";
export const refusedHint = "It may be mistyped, revoked, expired, or unused for 30 days. Run `acp-gateway link` for a new link, or paste another key.";
export const ask = "Open a link of the gateway, or paste its key here. `acp-gateway link` prints a new link.";
export const field = "Key or link";
export const malformed = "This does not look like a key: it has spaces or unusual characters in it.";
export const keep = "Keep the key on this device";
export const keepHint = "Otherwise it is forgotten when this tab closes. Leave it off where others use the same browser.";
export const goOn = "Continue";

export const replaceTitle = "Use the key of this link?";
export const replaceText =
  "This browser already has another key. With the key of the link you work as its user, and other keys of that user see your sessions. Replace your key only if you trust the sender of the link.";
export const keepMine = "Keep my key";
export const replace = "Replace the key";

export const mayNotPrompt = "This key may not send messages.";
export const mayNotStart = "This key may not start sessions.";
export const mayNotAnswer = "This key may not answer requests of agents.";
export const mayNotManage = "This key may not manage the gateway. The page needs a key with the scope `admin`.";

export const signedInAs = (principal: string) => `Signed in as ${principal}`;
export const rights = "Rights of the key";
export const may = "This key may";
/** By the scope of the key. */
export const scopes: Record<string, string> = {
  read: "Read sessions",
  prompt: "Send messages",
  approve: "Answer requests of agents",
  files: "Read and change files",
  mcp: "Bring MCP servers",
  fleet: "Offer agents",
  metrics: "Read metrics",
  actAs: "Act as other users",
  admin: "Manage the gateway",
};
