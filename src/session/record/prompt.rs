//! The record of a turn.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::codec::encode;
use super::keys::prompt_key;
use crate::eventlog::Records;
use crate::store::{Put, Table};
use crate::types::{PromptId, SessionId, Timestamp};

/// The state of a turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct PromptRecord {
    pub(in crate::session) prompt_id: PromptId,
    pub(in crate::session) status: StoredStatus,
    pub(in crate::session) by: String,
    pub(in crate::session) created_at: Timestamp,
    pub(in crate::session) ended_at: Option<Timestamp>,
    pub(in crate::session) first_seq: u64,
    pub(in crate::session) last_seq: Option<u64>,
    pub(in crate::session) stop_reason: Option<String>,
    pub(in crate::session) usage: Option<Box<RawValue>>,
    /// The problem of a failed turn, as the event of its end contains it.
    pub(in crate::session) error: Option<Box<RawValue>>,
    /// Whether a drain returned the started prompt to the queue before it was sent to the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::session) unsent: bool,
}

/// The progress of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::session) enum StoredStatus {
    Queued,
    Running,
    Completed,
    Failed,
}

impl StoredStatus {
    pub(in crate::session) const fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

impl PromptRecord {
    pub(in crate::session) fn put(&self, id: SessionId, records: &mut Records) {
        let key = prompt_key(id, self.prompt_id);
        records.puts.push(Put { table: Table::Prompt, key, value: encode(self) });
    }
}
