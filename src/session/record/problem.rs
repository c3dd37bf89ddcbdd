//! The stored problem of a failed turn.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::request::StoredResolution;
use crate::types::{PromptId, RequestId};

/// The problem of a failed turn, as the event of its end contains it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::option_option, reason = "a member that is null differs from an absent member")]
pub(in crate::session) struct StoredProblem {
    #[serde(rename = "type")]
    pub(in crate::session) kind: String,
    pub(in crate::session) title: String,
    pub(in crate::session) status: u16,
    pub(in crate::session) detail: String,
    /// The text form of the code. A later version may not have this code.
    pub(in crate::session) code: String,
    pub(in crate::session) retryable: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::session) errors: Vec<StoredFieldError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) acp: Option<StoredRpcError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) auth_methods: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) retry_after_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) prompt_id: Option<PromptId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) request_id: Option<RequestId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) resolution: Option<StoredResolution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) exit_code: Option<Option<i32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) signal: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) stderr_tail: Option<String>,
}

/// An invalid member of a body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::session) struct StoredFieldError {
    pub(in crate::session) pointer: String,
    pub(in crate::session) detail: String,
}

/// A JSON-RPC error of the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::session) struct StoredRpcError {
    pub(in crate::session) code: i64,
    pub(in crate::session) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) data: Option<Box<RawValue>>,
}
