//! Sessions. Each session has one actor task that owns its state.
//!
//! This module owns the content of a session's log, its turn and queue, the agent's open requests, and the
//! session's process. It must not know HTTP. A prompt or an answer reaches the agent only after its event is
//! durable.
//!
//! Reading order:
//!
//! 1. `handle` and `command`: the calls that other modules make, and the commands that they become.
//! 2. `registry`, `recovery` and `record`: how a session is created, loaded and stored.
//! 3. `actor` and `event_loop`: the task and its wakeups.
//! 4. `attachment`, `attach` and `restore`: how the session gets a process and returns it.
//! 5. `turn`, `queue` and `background_work`: prompts.
//! 6. `inbound` and `agent_requests`: messages of the agent.
//! 7. `client_calls` and `changes`: calls of clients outside a turn.

mod actor;
mod agent_sessions;
mod answers;
mod agent_requests;
mod attach;
mod attachment;
mod attachments;
mod bulk;
mod changes;
mod command;
mod committed;
mod context;
mod creation;
mod discarded;
mod elicitations;
mod files;
mod folders;
mod background_work;
mod upstream_delete;
mod handle;
mod idempotency;
mod inbound;
mod event_loop;
mod list;
mod metadata;
mod permissions;
mod queue;
mod quota;
mod record;
mod recovery;
mod refusal;
mod registry;
mod replacement;
mod replay;
mod requests;
mod restore;
mod client_methods;
mod sign_in;
mod subagents;
mod requirements;
mod adopt;
mod terminals;
mod turn;
mod gc;
mod client_calls;

pub use bulk::BulkAction;
pub use command::{Answer, PromptRequest};
pub use context::{Context, MayPrompt};
pub use folders::Workspaces;
pub use handle::{AdmittedPrompt, PromptRange, SessionHandle};
pub use idempotency::IdempotencyKey;
pub use list::ListQuery;
pub use metadata::{FILTER_KEY_BYTES, FILTER_VALUE_BYTES, MetadataFilter};
pub use refusal::Refusal;
pub use registry::{Created, SessionRegistry};
