//! Failures of a store.

use std::error::Error;

use crate::types::SessionId;

/// The cause of a failure, for the log.
pub type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing was written. The caller may retry with other values.
    #[error("expected record {index} has another value; nothing was written")]
    Conflict { index: usize },
    /// Nothing was written. The caller keeps the batch and retries.
    #[error("the disk is full")]
    Full,
    /// The content of the disk is unknown until the store is opened again. The process must exit.
    #[error("the store could not write")]
    Failed(#[source] BoxError),
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Events are damaged. The error is reported, and damaged events are never returned. The rest of the
    /// store is readable. Continue after `after`: a seq for [`EventStore::read`](super::EventStore::read), a position
    /// for [`EventStore::read_all`](super::EventStore::read_all).
    #[error("events {first_seq} to {last_seq} of session {session} are damaged on disk")]
    Corrupt {
        session: SessionId,
        first_seq: u64,
        last_seq: u64,
        after: u64,
    },
    #[error("the store could not read")]
    Failed(#[source] BoxError),
}
