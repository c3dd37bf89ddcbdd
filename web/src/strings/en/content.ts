// Content of messages: pictures, sounds, files and code.

export const picture = "Picture from the conversation";
export const pictureOf = (type: string) => `Picture (${type})`;
export const soundOf = (type: string) => `Sound (${type})`;
export const unknownType = "unknown type";
export const reference = "Reference";
export const attachedText = "Attached text";
export const unknown = "Content of a kind that this page does not show";
export const unknownOf = (type: string) => `Content of a kind that this page does not show (${type})`;
/** In place of a picture that has no words. */
export const image = "image";

/** `size`: of the text that is not shown. */
export const showRest = (size: string) => `Show more (${size} left)`;

/** In place of the language. */
export const plainText = "text";
export const code = (language: string) => `Code, ${language}`;
export const wrap = "Wrap";
