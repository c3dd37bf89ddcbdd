//! The record of a turn.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::codec::encode;
use super::keys::numbered_key;
use crate::eventlog::Records;
use crate::store::{Put, Table};
use crate::types::{
    AcpRequest, CancelCause, PromptId, PromptStatus, SessionId, Timestamp, TurnOutcome,
};

/// The state of a turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct PromptRecord {
    pub(in crate::session) prompt_id: PromptId,
    pub(in crate::session) status: PromptStatus,
    pub(in crate::session) by: String,
    pub(in crate::session) created_at: Timestamp,
    pub(in crate::session) ended_at: Option<Timestamp>,
    pub(in crate::session) first_seq: u64,
    pub(in crate::session) last_seq: Option<u64>,
    pub(in crate::session) stop_reason: Option<String>,
    pub(in crate::session) usage: Option<Box<RawValue>>,
    /// Why the gateway cancelled the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) cancel_cause: Option<CancelCause>,
    /// The problem of a failed turn, as the event of its end contains it.
    pub(in crate::session) error: Option<Box<RawValue>>,
    /// Whether the prompt has started and was not sent: its process ended before, or a drain returned it to the queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::session) unsent: bool,
    /// The request of the ACP client that sent the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) acp_request: Option<AcpRequest>,
    /// The broadcast that sent the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) broadcast: Option<Uuid>,
    /// The last edit of the content in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) edit: Option<PromptEdit>,
}

/// An edit of a queued prompt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::session) struct PromptEdit {
    /// The sequence number of the event with the new content.
    pub(in crate::session) seq: u64,
    /// The principal that edited the prompt.
    pub(in crate::session) by: String,
}

impl PromptRecord {
    /// The outcome of the turn; `None` before its end.
    pub(in crate::session) fn outcome(&self) -> Option<TurnOutcome> {
        match (self.status, self.stop_reason.as_deref()) {
            (PromptStatus::Failed, _) => Some(TurnOutcome::Failed),
            (PromptStatus::Completed, Some("cancelled")) => Some(TurnOutcome::Cancelled),
            (PromptStatus::Completed, _) => Some(TurnOutcome::Completed),
            (PromptStatus::Queued | PromptStatus::Running, _) => None,
        }
    }

    /// The sequence number of the event with the content that the agent gets.
    pub(in crate::session) fn content_seq(&self) -> u64 {
        self.edit.as_ref().map_or(self.first_seq, |edit| edit.seq)
    }

    pub(in crate::session) fn put(&self, id: SessionId, records: &mut Records) {
        let key = numbered_key(id, self.prompt_id.number());
        records.puts.push(Put {
            table: Table::Prompt,
            key,
            value: encode(self),
        });
    }
}
