//! Reads of a session's stored records, and waits for commits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::context::Context;
use super::error::SessionError;
use super::record::{self, PromptRecord, SessionRecord};
use agents::agent::AgentSpec;
use log::eventlog::SessionLog;
use log::store::{Run, Table};

pub(super) fn agent_spec(context: &Context, record: &SessionRecord) -> Arc<AgentSpec> {
    let spec = context.catalogue.agent(&record.agent);
    spec.unwrap_or_else(|| Arc::new(AgentSpec::removed(record.agent.clone())))
}

/// The content blocks of a prompt, with the last edit. `None` if the log no longer has the event that has them.
pub(super) async fn prompt_blocks(
    log: &SessionLog,
    record: &PromptRecord,
) -> Result<Option<Box<RawValue>>, SessionError> {
    blocks_of(log, record.content_seq()).await
}

/// The content blocks as the client sent the prompt, before edits. `None` if the log no longer has the event that has them.
pub(super) async fn first_blocks(
    log: &SessionLog,
    record: &PromptRecord,
) -> Result<Option<Box<RawValue>>, SessionError> {
    blocks_of(log, record.first_seq).await
}

async fn blocks_of(log: &SessionLog, seq: u64) -> Result<Option<Box<RawValue>>, SessionError> {
    let runs = log.read(seq - 1, 1).await?;
    let event = runs
        .iter()
        .flat_map(Run::events)
        .find(|event| event.seq() == seq);
    Ok(event
        .and_then(|event| event.payload()?.prompt)
        .map(ToOwned::to_owned))
}

pub(super) async fn read_record<T: serde::de::DeserializeOwned>(
    context: &Context,
    table: Table,
    key: Vec<u8>,
) -> Result<Option<T>, SessionError> {
    let stored = context.log.get(table, key).await?;
    stored
        .map(|bytes| record::decode(&bytes).map_err(SessionError::from))
        .transpose()
}

/// A wait fails at the first check after this time, with [`SessionError::Internal`].
const COMMIT_TIMEOUT: Duration = Duration::from_mins(1);
/// The interval at which a wait checks whether the disk is full.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

pub(super) async fn wait_durable(
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
pub(super) async fn wait_durable_or_full(
    context: &Context,
    log: &SessionLog,
    seq: u64,
) -> Result<bool, SessionError> {
    tokio::select! {
        biased;
        durable = wait_durable(context, log, seq) => durable.map(|()| true),
        durable = log.wait_or_full(seq) => durable.map_err(SessionError::from),
    }
}
