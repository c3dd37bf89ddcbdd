//! The same agent in v2 of ACP.
//!
//! A prompt is steps with `;` between them, as in v1. They play between the usual beginning (`answer; user; running`)
//! and the usual end (`idle`). After `raw` there is neither, and the steps themselves say the order.
//!
//! | step | what it does |
//! | --- | --- |
//! | anything else | says the prompt's text |
//! | `answer`, `refuse code=-32603` | the answer to `session/prompt`: `{messageId}`, an error |
//! | `user` | the message of the prompt |
//! | `running`, `requires-action`, `state name=_x` | a `state_update` |
//! | `idle reason=end_turn`, `idle reason=none` | the end of the work, with or without its reason |
//! | `error code=-32603 message=failed` | idle with the reason `error`; `code=0`: without the error |
//! | `usage` | idle with the tokens of the work |
//! | `say text=TEXT` | a chunk of the agent's message |
//! | `pause ms=100` | waits |
//! | `hang` | waits for a cancel, then idle with the reason `cancelled` |
//! | `hold` | waits for a cancel, and answers the prompt with -32800 |
//! | `deaf` | goes on saying "still here" whatever comes |
//! | `upserts`, `tools`, `terminal`, `state-of-things` | updates of those kinds |
//! | `permission`, `command-permission`, `withdrawn` | asks; says what came of it |
//! | `unserved` | asks for a file and a terminal of the client; says the errors' codes |
//! | `tool-hang`, `terminal-hang` | a tool call or a terminal that can be cancelled; waits until it is |
//! | `crash code=42` | the end of the process |

mod agent;
mod steps;
mod updates;

pub(crate) use agent::Agent;
