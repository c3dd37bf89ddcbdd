// The messages that wait until the running turn ends.

export const name = "Queue";
export const queued = "Queued";
export const sentLater = "Queued · sent when this turn ends";
export const late = "The message was sent or removed before your change. The changed text is in the field.";
export const message = "Queued message";
export const whole = "Show the whole message";
export const sendNow = "Send now";
export const sendNowTitle = "Stop the running turn and send this message now";
export const sendEarlier = "Send earlier";
export const sendLater = "Send later";
export const edit = "Edit";
export const remove = "Remove";
export const attachments = (count: number) => (count === 1 ? "1 attachment" : `${count} attachments`);
