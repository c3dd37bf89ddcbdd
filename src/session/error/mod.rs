//! The errors of session operations. Each operation has its own enum, made of shared ones.

mod operations;
mod shared;

pub use operations::{
    AgentSessionsError, AnswerError, ClaimError, CommandError, CreateError, ListError, PatchError,
    PromptError, WorkspaceError,
};
pub use shared::{FolderError, IdempotencyError, InputError, SessionError, ToProblem};
