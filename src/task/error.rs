//! The errors of operations on tasks.

use crate::api::{Problem, ProblemCode};
use crate::eventlog::{Closed, ReadError};
use crate::session::ToProblem;
use crate::webhooks;

/// The number of queued tasks of a tenant.
pub(super) const MAX_QUEUED: usize = 10_000;
/// The number of levels of a chain of tasks.
pub(super) const MAX_LEVELS: u8 = 4;
/// The number of characters of a description.
pub(super) const MAX_DESCRIPTION_CHARS: usize = 65_536;

/// Why the tasks could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("could not read the tasks")]
    Records(#[from] ReadError),
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why a request creates no task.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Session(Box<crate::session::CreateError>),
    #[error("expected 1 to {MAX_DESCRIPTION_CHARS} characters")]
    Description,
    #[error("no such task, or a task of another tenant")]
    NoSuchParent,
    #[error("the parent has ended")]
    ParentEnded,
    #[error("a chain of tasks has at most {MAX_LEVELS} levels")]
    TooDeep,
    #[error(transparent)]
    Callback(webhooks::CreateError),
    #[error("too many queued tasks (limit {MAX_QUEUED}); retry later")]
    QueueFull,
    #[error("the Idempotency-Key was used with another body")]
    KeyMismatch,
    #[error("the first request with this Idempotency-Key is still in flight")]
    KeyInFlight,
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl From<ReadError> for CreateError {
    fn from(error: ReadError) -> Self {
        Self::Change(error.into())
    }
}

impl From<Closed> for CreateError {
    fn from(error: Closed) -> Self {
        Self::Change(error.into())
    }
}

impl From<crate::session::CreateError> for CreateError {
    fn from(error: crate::session::CreateError) -> Self {
        Self::Session(Box::new(error))
    }
}

impl ToProblem for CreateError {
    fn problem(&self) -> Problem {
        let new = |code| Problem::new(code, self.to_string());
        match self {
            Self::Session(error) => of_task(error.problem()),
            Self::Description => Problem::invalid("/description", self.to_string()),
            Self::NoSuchParent | Self::ParentEnded | Self::TooDeep => {
                Problem::invalid("/parentTask", self.to_string())
            }
            Self::Callback(webhooks::CreateError::Disabled) => new(ProblemCode::Forbidden),
            Self::Callback(_) => Problem::invalid("/callbackUrl", self.to_string()),
            Self::QueueFull => new(ProblemCode::QueueFull),
            Self::KeyMismatch => new(ProblemCode::IdempotencyMismatch),
            Self::KeyInFlight => new(ProblemCode::IdempotencyInFlight),
            Self::Change(error) => error.problem(),
        }
    }
}

/// The problem of a request for a session, with the members of the request for a task.
fn of_task(mut problem: Problem) -> Problem {
    for error in &mut problem.errors {
        if let Some(pointer) = error.pointer.strip_prefix("/policy") {
            error.pointer = pointer.to_owned();
        }
    }
    problem
}

/// Why a change of a task is not stored.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The operation has panicked. The panic is in the log.
    #[error("internal error")]
    Internal,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl ToProblem for ChangeError {
    fn problem(&self) -> Problem {
        match self {
            Self::Read(_) | Self::Internal => Problem::internal(),
            Self::Closed(_) => Problem::new(ProblemCode::Draining, self.to_string()),
        }
    }
}
