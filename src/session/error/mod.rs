//! The errors of session operations, and the problems that clients receive.
//!
//! 1. `shared`: errors that many operations have. A read fails only with `SessionError`, a check only with `InputError`.
//! 2. `process`: why a session has no process, and the errors of the pool and of agents.
//! 3. `operations`: the error of each operation, made of these errors.
//!
//! Each operation has its own enum, so its signature shows the possible errors. Do not add an enum for all operations.
//! Only problem codes define HTTP statuses, because the event `prompt.failed` contains the same problem. The
//! conversion to `SessionError::Internal` logs the cause. Clients receive only the request id.

use std::time::Duration;

/// Implements [`ToProblem`] for an enum whose variants each contain another error.
macro_rules! delegate_to_parts {
    ($name:ident { $($variant:ident),* }) => {
        impl ToProblem for $name {
            fn problem(&self) -> Problem {
                match self { $(Self::$variant(part) => part.problem(),)* }
            }

            fn limit(&self) -> Option<&LimitExceeded> {
                match self { $(Self::$variant(part) => part.limit(),)* }
            }
        }
    };
}

mod operations;
mod process;
mod shared;

pub(super) use self::operations::{
    AdmitError, NotQueued, PreconditionFailed, RequestResolved, TurnRunning,
};
pub use self::operations::{
    AgentSessionsError, AnswerError, AttachError, CallError, ClaimError, CreateError, DeleteError,
    IdempotencyError, ListError, PartError, PatchError, PromptError, QueueError, WorkspaceError,
};
pub(super) use self::process::ProcessError;
pub(super) use self::shared::NotFound;
pub use self::shared::{InputError, SessionError};
use crate::api::{Problem, ProblemCode};
use crate::types::LimitExceeded;

/// The suggested delay before a retry, for example after which another session may have released its process.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// An error that clients receive as a problem, in a response or in an event.
pub trait ToProblem: std::error::Error {
    fn problem(&self) -> Problem;

    /// The limit of the principal that the request exceeded.
    fn limit(&self) -> Option<&LimitExceeded> {
        None
    }
}

/// The problem of a temporary error. `wait`: the suggested delay before a retry.
fn transient(error: &impl ToProblem, code: ProblemCode, wait: Duration) -> Problem {
    Problem {
        retry_after_seconds: Some(wait.as_secs().max(1)),
        ..Problem::new(code, error.to_string())
    }
}
