//! Sessions. Each session has one actor task that owns its state.
//!
//! This module owns the content of a session's log, its turn and queue, the agent's open requests, and the
//! session's process. It must not know HTTP. A prompt or an answer reaches the agent only after its event is
//! durable.
//!
//! Reading order:
//!
//! 1. `handle` and `command`: the calls that other modules make, and the commands that they become.
//! 2. `registry` and `record`: how a session is created, loaded and stored.
//! 3. `journal`: the only way to write the log and the records of a session.
//! 4. The parts, each a state machine with private state: `turns`, `attachment`, `agent_requests`, `client_calls`,
//!    `client_methods`. They know neither the actor nor the store.
//! 5. `process_link` and `event_loop`: the process, and the sources that wake the actor.
//! 6. `actor`: passes each wakeup to its part and applies the effects.

mod actor;
mod journal;
mod turns;
mod entry;
mod stored;
mod process_link;
mod agent_sessions;
mod agent_requests;
mod attachment;
mod attachments;
mod bulk;
mod command;
mod committed;
mod context;
mod creation;
mod folders;
mod upstream_delete;
mod handle;
mod idempotency;
mod event_loop;
mod list;
mod metadata;
mod record;
mod refusal;
mod registry;
mod client_methods;
mod requirements;
mod adopt;
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
