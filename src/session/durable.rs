//! Waits for commits.

use std::time::Duration;

use super::context::Context;
use super::error::SessionError;
use crate::eventlog::SessionLog;

/// A wait fails at the first check after this time, with [`SessionError::Internal`].
const COMMIT_TIMEOUT: Duration = Duration::from_mins(1);
/// The interval at which a wait checks whether the disk is full.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Waits for a commit. Fails if the disk accepts no commits.
pub(super) async fn wait(
    context: &Context,
    log: &SessionLog,
    seq: u64,
) -> Result<(), SessionError> {
    let mut waited = Duration::ZERO;
    loop {
        if let Ok(outcome) = tokio::time::timeout(CHECK_INTERVAL, log.wait(seq)).await {
            return outcome.map_err(SessionError::from);
        }
        waited += CHECK_INTERVAL;
        if context.log.storage_full() {
            return Err(SessionError::StorageFull);
        }
        if waited >= COMMIT_TIMEOUT {
            tracing::error!(session = %log.session(), seq, "an event was not committed within {COMMIT_TIMEOUT:?}");
            return Err(SessionError::Internal);
        }
    }
}

/// Waits for a commit. Returns false if the disk accepts no commits.
pub(super) async fn wait_or_full(
    context: &Context,
    log: &SessionLog,
    seq: u64,
) -> Result<bool, SessionError> {
    tokio::select! {
        biased;
        durable = wait(context, log, seq) => durable.map(|()| true),
        durable = log.wait_or_full(seq) => durable.map_err(SessionError::from),
    }
}
