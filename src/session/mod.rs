//! Sessions. Each session has one actor task that owns its state.
//!
//! This module owns the content of a session's log, its turn and queue, the agent's open requests, and the
//! session's process. It must not know HTTP. A prompt or an answer reaches the agent only after its event is
//! durable.
//!
//! Reading order:
//!
//! 1. `registry`: how sessions begin and end. `entries`: how their actors are loaded and replaced.
//! 2. `handle` and `command`: the calls that other modules make, and the commands that they become.
//! 3. `query`: reads that need no actor.
//! 4. `record`, `stored` and `recovery`: how a session is stored and loaded.
//! 5. `actor` and `event_loop`: the task and its wakeups.
//! 6. `attachment`, `attach` and `restore`: how the session gets a process and returns it.
//! 7. `turn`, `queue` and `background_work`: prompts.
//! 8. `inbound` and `agent_requests`: messages of the agent.
//! 9. `client_calls` and `changes`: calls of clients outside a turn.
//!
//! `error` has one error for each operation, `refusal` those of commands that need a process or a turn.
//!
//! The actor does not import `registry`, `entries`, `handle` and `query`.

mod actor;
mod agent_requests;
mod answers;
mod attach;
mod attachment;
mod background_work;
mod changes;
mod client_calls;
mod client_methods;
mod command;
mod context;
mod creation;
mod discarded;
mod durable;
mod elicitations;
mod entries;
mod entry;
mod error;
mod event_loop;
mod files;
mod folders;
mod handle;
mod idempotency;
mod inbound;
mod metadata_index;
mod origin;
mod permissions;
mod query;
mod queue;
mod quota;
mod record;
mod recovery;
mod refusal;
mod registry;
mod replacement;
mod replay;
mod requests;
mod requirements;
mod restore;
mod sign_in;
mod snapshot;
mod stored;
mod subagents;
mod terminals;
mod turn;
mod upstream_delete;
mod validation;

pub use command::{Answer, PromptRequest};
pub use context::{Context, MayPrompt};
pub use error::{
    AgentSessionsError, AnswerError, ClaimError, CommandError, CreateError, FolderError, IdempotencyError,
    InputError, ListError, PatchError, PromptError, SessionError, ToProblem, WorkspaceError,
};
pub use handle::{AdmittedPrompt, SessionHandle};
pub use idempotency::IdempotencyKey;
pub use metadata_index::{FILTER_KEY_BYTES, FILTER_VALUE_BYTES};
pub use query::{ListQuery, MetadataFilter, PromptRange, SessionQuery};
pub use refusal::Refusal;
pub use registry::{BulkAction, Created, SessionRegistry};
