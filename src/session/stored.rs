//! Reads of a session's stored records.

use std::sync::Arc;

use super::context::Context;
use super::record::{self, SessionRecord};
use super::refusal::Refusal;
use crate::agent::AgentSpec;
use crate::store::Table;

/// The current configuration of the session's agent.
pub(super) fn agent_spec(context: &Context, record: &SessionRecord) -> Arc<AgentSpec> {
    let spec = context.catalogue.agent(&record.agent);
    spec.unwrap_or_else(|| Arc::new(AgentSpec::removed(record.agent.clone())))
}

/// Reads and decodes a record.
pub(super) async fn read_record<T: serde::de::DeserializeOwned>(
    context: &Context,
    table: Table,
    key: Vec<u8>,
) -> Result<Option<T>, Refusal> {
    let stored = context.log.get(table, key).await.map_err(|error| Refusal::internal(&error))?;
    stored.map(|bytes| record::decode(&bytes).map_err(|error| Refusal::internal(&error))).transpose()
}
