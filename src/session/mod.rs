//! Sessions. Each session has one actor task that owns its state.
//!
//! This module owns the content of a session's log, its turn and queue, the agent's open requests, and the
//! session's process. It must not know HTTP. A prompt or an answer reaches the agent only after its event is
//! durable.
//!
//! Reading order:
//!
//! 1. `registry`: creation, adoption, fork and removal of sessions. `entries`: load and replacement of their actors.
//! 2. `handle` and `command`: the calls that other modules make, and the commands that they become.
//! 3. `query`: reads that need no actor.
//! 4. `record` and `stored`: the stored form of a session. `metadata_index`, `folders` and `relocate` belong to it, and `baselines` with
//!    `changes`: the files at the start of a session.
//! 5. `journal`: appends to the log of a session, and saves its records with the events.
//! 6. The parts, each a state machine with private state: `turns`, `attachment`, `agent_requests`, `client_calls`,
//!    `client_methods`, `serving_clients`. They know neither the actor nor the store.
//! 7. `process_link` and `event_loop`: the process, and the sources that wake the actor.
//! 8. `actor`: passes each wakeup to its part and applies the effects.
//!
//! `error` has the error of each operation. The actor does not import `registry`, `entries`, `handle` or `query`.

mod actor;
mod agent_requests;
mod attachment;
mod baselines;
mod brought_servers;
mod changes;
mod client_calls;
mod client_methods;
mod command;
mod context;
mod durable;
mod entries;
mod entry;
mod error;
mod event_loop;
mod folders;
mod handle;
mod idempotency;
mod journal;
mod metadata_index;
mod origin;
mod process_link;
mod query;
mod record;
mod registry;
mod relocate;
mod requirements;
mod serving_clients;
mod snapshot;
mod stored;
mod turns;
mod upstream_delete;
mod validation;

pub use baselines::{Baselines, OpenBaseline};
pub use command::{Answer, ClientCall, PromptRequest};
pub use context::{Context, MayPrompt};
pub use error::{
    AgentSessionsError, AnswerError, AttachError, CallError, ClaimError, CreateError, DeleteError,
    IdempotencyError, InputError, ListError, PartError, PatchError, PromptError, QueueError,
    SessionError, ToProblem, WorkspaceError,
};
pub use handle::{AdmittedPrompt, SessionHandle};
pub use idempotency::{Claim, IdempotencyKey, Responded};
pub use metadata_index::{FILTER_KEY_BYTES, FILTER_VALUE_BYTES};
pub use query::{ListOrder, ListQuery, MetadataFilter, PromptRange, SessionQuery};
pub use record::IdempotencyRecord;
pub use registry::{BulkAction, Created, SessionRegistry};
pub use relocate::{RelocateError, relocate_folders};
pub use serving_clients::{Presence, ServedMethods, ServingClient};
