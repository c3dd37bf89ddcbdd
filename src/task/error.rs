//! The errors of operations on tasks.

use crate::eventlog::{Closed, ReadError};
use crate::session::ClaimError;
use crate::types::LimitExceeded;
use crate::types::text::UnsafeCharacter;
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
    #[error(transparent)]
    UnsafeDescription(#[from] UnsafeCharacter),
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
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error("must be in the future")]
    Deadline,
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
