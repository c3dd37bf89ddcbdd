// An action of a person on a session.

/** Runs an action and shows its error. Its result arrives in the log. Resolves to whether it succeeded. */
export type Act = (action: () => Promise<unknown>) => Promise<boolean>;
