// Questions of the agent that are no permissions: forms, pages to open, and requests without a form.

export const cancelledAt = (time: string) => `Cancelled at ${time} if nobody answers.`;
export const wrongFields = (count: number) => (count === 1 ? "One field needs another look." : `${count} fields need another look.`);
export const decline = "Decline";
export const needed = "(needed)";
export const chooseOne = "Choose one";
export const none = "None";

/** `of`: what is counted. */
export const between = (from: number, to: number, of: string) => `${from} to ${to}${of}.`;
export const atLeast = (from: number, of: string) => `At least ${from}${of}.`;
export const atMost = (to: number, of: string) => `At most ${to}${of}.`;
export const characters = " characters";
export const ofThese = " of these";
export const asJson = "As JSON.";
export const isNeeded = "This is needed.";
export const notNumber = "A number is expected.";
export const notJson = "This is not JSON.";
export const notTime = "A date and a time are expected.";

export const asksToOpen = "The agent asks you to open a page";
export const isAt = "It is at {}";
export const notEncrypted = "What you send there is not encrypted.";
export const notHost = "The name before the @ is no part of the host.";
export const noAddress = "Its address is none that a browser may open.";
export const openPage = "Open the page";

export const noForm = "The agent asks for something that this page has no form for";
export const whatIsAsked = "What is asked";
export const result = "The result, as JSON";
export const refuse = "Refuse";
export const sendResult = "Send the result";
