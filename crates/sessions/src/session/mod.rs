//! Sessions. Each session has one actor task that owns its state.
//!
//! This module owns the content of a session's log, its turn and queue, the agent's open requests, and the
//! session's process. It must not know HTTP. A prompt or an answer reaches the agent only after its event is
//! durable.
//!
//! Reading order:
//!
//! 1. `directory`: creation, adoption, fork and removal of sessions. `entries`: load and replacement of their actors.
//! 2. `handle` and `command`: the calls that other modules make. Each one runs a closure in the actor.
//! 3. `query`: reads that need no actor.
//! 4. `record`: the stored form of a session. `context`: its reads, and waits for commits. `metadata_index`, `folders`, `grants` and `export` belong to it, and `baselines` with
//!    `changes`: the files at the start of a session.
//! 5. `journal`: appends to the log of a session, and saves its records with the events. Nothing else writes.
//! 6. `turns`, `binding` and `requests`: the owners of the session's state, which append what they decide.
//! 7. `actor`: waits, and passes each wakeup to its owner.
//!
//! `error` has the error of each operation. The actor does not import `directory`, `entries`, `handle` or `query`.

mod actor;
mod baselines;
mod binding;
mod changes;
mod command;
mod context;
mod directory;
mod entries;
mod error;
mod export;
#[cfg(test)]
mod fixtures;
mod folders;
mod grants;
mod handle;
mod idempotency;
mod journal;
mod metadata_index;
mod query;
mod record;
mod requests;
mod turns;
mod validation;

pub use baselines::{Baselines, OpenBaseline};
pub use command::{Answer, ClientCall, PromptRequest, access_to_answer};
pub use context::{Context, MayPrompt};
pub use directory::{BulkAction, Created, ImportError, Imported, SessionDirectory};
pub use error::{
    AgentSessionsError, AnswerError, AttachError, CallError, ClaimError, CreateError, DeleteError,
    GrantError, IdempotencyError, InputError, ListError, PartError, PatchError, PromptError,
    QueueError, SessionError, ToProblem, WorkspaceError,
};
pub use export::{ExportError, Exported, MAX_EXPORTED_FILE_BYTES, export};
pub use folders::{Folders, RelocateError, relocate_folders};
pub use handle::{AdmittedPrompt, SessionHandle};
pub use idempotency::{Claim, IdempotencyKey, Responded};
pub use metadata_index::{FILTER_KEY_BYTES, FILTER_VALUE_BYTES};
pub use query::{ListOrder, ListQuery, MetadataFilter, PromptRange, SessionQuery};
pub use record::IdempotencyRecord;
pub use requests::client_tools::{ClientTools, Presence, ToolClient};
