// Agents: their kinds and states, and their own sessions.

/** By the kind of the agent. */
export const kinds: Record<string, string> = { remote: "Remote host", fleet: "Fleet member" };
/** By the dialect of the protocol. */
export const dialects: Record<string, string> = { "stream-json": "Claude Code protocol", "early-acp": "Early ACP" };
export const builtIn = "Built in";
export const command = "Command";

export const available = "Available";
export const unavailable = "Unavailable";
export const reconnecting = "Reconnecting";
export const reconnectingHint = "A new session waits for its return.";
export const disconnected = "Disconnected";
export const disconnectedHint = "Start acp-gateway connect on its machine again.";
export const draining = "Draining";
export const drainingHint = "It starts no new sessions. Restart acp-gateway connect to end the drain.";

export const none = "No agent";
export const label = "Agent: ";
export const menu = "Agent of the session";
export const legend = "Agent";

export const noOutput = "The process has written nothing to stderr, or the session has no process now.";

export const sessionsOf = (agent: string) => `Sessions of ${agent}`;
export const asking = "Asking the agent…";
export const noSessions = "The agent has no sessions below the workspace roots.";
export const isHere = "here already";

export const install = "Install more agents";
export const noRegistry = "Set `registry.source` in the configuration to list the agents of a registry here. `acp-gateway agent search` lists them in a terminal.";
export const allConfigured = "Every agent of the registry is configured.";
export const notForMachine = "Not available for this machine";
