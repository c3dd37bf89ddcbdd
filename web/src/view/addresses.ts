// The addresses that the Markdown of an agent may contain.

export const LINK = /^(https?:\/\/|mailto:)/i;
/**
 * A request for a remote image would show its server that the message was read. Only images that need no request are
 * shown. A browser draws these kinds without running anything in them.
 */
export const IMAGE = /^data:image\/(png|jpeg|gif|webp|avif);base64,[a-z\d+/]+=*$/i;
