//! The record of a request of the agent.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::codec::encode;
use super::keys::numbered_key;
use crate::acp::Outcome;
use crate::eventlog::Records;
use crate::fleet::ChannelId;
use crate::store::{Put, Table};
use crate::types::{PromptId, RequestId, Resolution, SessionId, Timestamp};

/// A request of the agent and its resolution.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct RequestRecord {
    /// `None` after the request is resolved.
    pub(in crate::session) pending: Option<StoredRequest>,
    pub(in crate::session) resolution: Option<Resolution>,
    pub(in crate::session) by: Option<String>,
    /// The request as its agent knows it, if the agent's process outlives the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) peer: Option<PeerRequest>,
}

/// A request as its agent knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct PeerRequest {
    pub(in crate::session) channel: ChannelId,
    /// The position of the request in the output of the agent.
    pub(in crate::session) number: u64,
    /// The agent's id.
    pub(in crate::session) id: Box<RawValue>,
    /// The answer, as a result or an error. `None` while the request is open.
    pub(in crate::session) result: Option<Box<RawValue>>,
    pub(in crate::session) error: Option<Box<RawValue>>,
}

/// A request that waits for an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct StoredRequest {
    pub(in crate::session) request_id: RequestId,
    pub(in crate::session) method: String,
    /// The raw params, with the gateway's session id.
    pub(in crate::session) params: Box<RawValue>,
    pub(in crate::session) prompt_id: Option<PromptId>,
    /// The child session that sent the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) subagent: Option<String>,
    /// The ACP client that alone can answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) acp_client: Option<String>,
    pub(in crate::session) created_at: Timestamp,
    pub(in crate::session) deadline: Option<Timestamp>,
}

impl PeerRequest {
    pub(in crate::session) fn answered(self, outcome: Outcome) -> Self {
        let (result, error) = match outcome {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            result,
            error,
            ..self
        }
    }
}

impl RequestRecord {
    pub(in crate::session) fn put(&self, id: SessionId, request: RequestId, records: &mut Records) {
        let key = numbered_key(id, request.number());
        records.puts.push(Put {
            table: Table::Request,
            key,
            value: encode(self),
        });
    }
}
