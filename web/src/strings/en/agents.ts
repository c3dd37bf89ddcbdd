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

export const add = "Add an agent";
export const addMore = "Add more agents";
export const onlyDemo = "The demo agent has no model. Add an agent that works for you.";
export const needsAdminLink = "A link of `acp-gateway key create NAME --user owner --scopes read,prompt,approve,files,admin --link` can add agents here.";
export const onMachine = "On this machine";
export const ofRegistry = "From the registry";
export const addIt = (agent: string) => `Add ${agent}`;
export const addShort = "Add";
export const installIt = (agent: string, version: string) => `Install ${agent} ${version}`;
export const installShort = "Install";
export const showRegistry = "Show the agents of the ACP registry";
export const loadsFrom = (host: string) => `The gateway loads the list from ${host}.`;
export const loadingRegistry = "Loading the list…";
export const noRegistry = "Set `registry.source` in the configuration to install agents of a registry here. `acp-gateway agent add` installs them in a terminal.";
export const allConfigured = "Every agent of the registry is configured.";
export const notForMachine = "Not available for this machine";
export const needsKey = (variables: string[], inherits: boolean) =>
  `Needs a sign-in, or ${anyOf(variables)}${inherits ? ", which it receives if the gateway's environment has it" : ""}`;

export const adding = "Adding the agent";
export const download = "Download";
export const addFailed = (agent: string) => `${agent} was not added`;
export const added = (agent: string) => `${agent} is added. Write the first message above.`;
export const usesKey = (variables: string[]) => `It uses ${anyOf(variables)} of the gateway's environment.`;
export const keyInEnvironment = (variables: string[]) => `To use a key, start the gateway again with ${anyOf(variables)} in its environment.`;
export const keyInEntry = (variables: string[], agent: string, file: string) => `To use a key, set ${anyOf(variables)} in \`env\` of \`[agents.${agent}]\` in \`${file}\`, and start the gateway again.`;
export const offersSignIn = (methods: string[]) => `Or sign in: ${methods.join(", ")}. The page offers it when the agent asks for it.`;
export const signInLater = "Or sign in: the page offers it when the agent asks for it.";

const anyOf = (variables: string[]) => variables.map((name) => `\`${name}\``).join(" or ");
