// Raw pieces of ACP, as agents send them. The gateway does not check them, so that each member can be absent or have another
// type: `read.ts` and `state/offers.ts` read them.

/** A raw piece of ACP: passed on as the agent sent it, so nothing about it is certain. */
export type Raw = Record<string, unknown>;

export interface SessionMode {
  id: string;
  name: string;
  description?: string | null;
}

export interface SessionModes {
  currentModeId: string;
  availableModes: SessionMode[];
}

export interface ConfigChoice {
  value: string;
  name: string;
  description?: string | null;
}

export interface ConfigGroup {
  group: string;
  name: string;
  options: ConfigChoice[];
}

export interface ConfigOption {
  id: string;
  name: string;
  description?: string | null;
  category?: string | null;
  type: string;
  currentValue: string | boolean;
  options?: (ConfigChoice | ConfigGroup)[];
}

export interface Command {
  name: string;
  description: string;
  /** What to write behind the name. Null: nothing. */
  hint: string | null;
}

export interface AuthMethod {
  id: string;
  name: string;
  description?: string | null;
  type?: string;
}

/**
 * A piece of a message. The document has a type for each kind of block; this one has the members of all kinds, because agents
 * send kinds that the document does not list.
 */
export interface ContentBlock {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
  uri?: string;
  name?: string;
  title?: string | null;
  resource?: { uri?: string; text?: string; blob?: string; mimeType?: string };
}
