// The sign-in of an agent.

export const apiKey = "API key";
export const signIn = "Sign in";
export const signInAtTerminal = "Sign in at a terminal";
export const ways = "Ways to sign in";
export const needsAdmin = "With an admin key you could sign in here.";
export const busy = "Signing in… This may wait for something that you do elsewhere.";
export const done = "Signed in. Try again what you wanted to do.";
export const failed = (why: string) => `That did not work. ${why}`;

export const terminal = "Terminal of the sign-in";
export const agentSays = "What the agent says";
export const youType = "What you type";
export const typeIt = "Type it";
export const connectionLost = "The connection to the terminal was lost.";
export const unknownMessage = "The gateway said something that this page does not know.";
export const restarts = "The gateway is about to restart.";
export const endedWith = (code: string) => `The command ended with ${code}.`;
export const endedBy = (signal: string) => `The command ended by ${signal}.`;
