// Errors, with the next step.

/** The next step, by the code of the problem. */
export const hints: Record<string, string> = {
  unauthorized: "Open the link that the gateway printed when it started, or paste its key.",
  forbidden: "This key, or the configuration of the gateway, does not allow that.",
  not_found: "It may have been deleted in another window.",
  misdirected_request: "Open the page by the address that the gateway printed, or add this host name to its configuration.",
  too_large: "Make the message shorter.",
  prompt_not_queued: "It is no longer in the queue, because it has started or was removed.",
  turn_running: "Wait for the agent to finish, or stop it first.",
  session_closed: "Open the session again to go on.",
  request_resolved: "Somebody else has answered it already.",
  agent_auth_required: "Sign in with an admin key here, or with the agent's own command where the gateway runs. Then try again.",
  agent_start_failed: "Check that the agent's command is installed where the gateway runs. Its log says more.",
  agent_exited: "Send the message again: the gateway starts the agent anew.",
  agent_disconnected: "Check that the agent's host is running and can be reached. Then send the message again: the gateway connects anew.",
  member_unavailable: "Start acp-gateway connect on the agent's machine, or wait until it is back. Then send the message again.",
  agent_timeout: "The agent did not answer in time. Try again in a moment.",
  agent_unsupported: "This agent cannot do that.",
  rate_limited: "Wait a moment, then try again.",
  body_memory_full: "The gateway receives too many large messages at once. Try again in a moment.",
  queue_full: "Too much is waiting already. Try again when something has finished.",
  pool_full: "All agent processes are busy. Try again in a moment.",
  crash_loop: "The agent keeps crashing in this session. Wait a little, or start another session.",
  draining: "The gateway is about to restart. Try again in a moment.",
  storage_full: "The gateway's disk is full. Free some space where it runs.",
  interrupted: "Send the message again if you still need it.",
  cancel_timeout: "The agent did not stop when asked, so the gateway ended it.",
  internal: "Try again. If it stays, look into the gateway's log.",
};
export const unreachableHint = "Check that it is still running. The page tries again by itself where it can.";
export const inPage = "Something went wrong in this page.";
export const reported = "What the agent reported";
export const errorData = "Data of the agent's error";
export const errorOutput = "What the agent wrote to its error output";
