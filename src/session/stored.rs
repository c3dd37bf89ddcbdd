//! Reads of a session's stored records.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::context::Context;
use super::error::SessionError;
use super::record::{self, PromptRecord, SessionRecord};
use crate::agent::AgentSpec;
use crate::eventlog::SessionLog;
use crate::store::{Run, Table};

/// The current configuration of the session's agent.
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

/// Reads and decodes a record.
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
