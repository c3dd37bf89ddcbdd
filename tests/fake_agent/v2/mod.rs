//! The fake agent for v2 of ACP.
//!
//! A prompt is steps separated by `;`, as in v1. They run between the usual beginning (`answer; user; running`) and
//! the usual end (`idle`). After `raw` neither is added, and the steps define the complete order.
//!
//! | step | effect |
//! | --- | --- |
//! | any other text | sends the text of the prompt |
//! | `answer`, `refuse code=-32603` | answers `session/prompt`: `{messageId}`, an error |
//! | `user` | sends the message of the prompt |
//! | `running`, `requires-action`, `state name=_x` | sends a `state_update` |
//! | `idle reason=end_turn`, `idle reason=none` | ends the work, with or without a reason |
//! | `error code=-32603 message=failed` | sends idle with the reason `error`; `code=0` omits the error |
//! | `usage` | sends idle with the tokens of the work |
//! | `say text=TEXT` | sends a chunk of the agent's message |
//! | `pause ms=100` | waits |
//! | `hang` | waits for a cancel, then sends idle with the reason `cancelled` |
//! | `hold` | waits for a cancel, and answers the prompt with -32800 |
//! | `deaf` | sends "still here" repeatedly and ignores cancels |
//! | `upserts`, `tools`, `terminal`, `state-of-things` | sends updates of these kinds |
//! | `permission`, `command-permission`, `withdrawn` | sends a permission request, then its result |
//! | `unserved` | requests a file and a terminal of the client; sends the error codes |
//! | `tool-hang`, `terminal-hang` | starts a tool call or a terminal that can be cancelled, and waits for the cancel |
//! | `crash code=42` | ends the process |

mod agent;
mod steps;
mod updates;

pub(crate) use agent::Agent;
