//! Events about a turn.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::Problem;
use crate::types::{AcpRequest, CancelCause, PromptId};

/// A prompt waits for the end of the running turn.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptQueued<'a> {
    /// The content blocks as the agent will receive them.
    #[schema(value_type = Vec<Object>)]
    pub prompt: &'a RawValue,
    /// The position in the queue; 1 is the next prompt.
    pub position: usize,
    /// The principal that sent the prompt.
    pub by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idempotency_key: Option<&'a str>,
    /// The request of the ACP client that sent the prompt. Absent for a prompt over another protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_request: Option<&'a AcpRequest>,
    /// The broadcast that sent the prompt. Absent for another prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub broadcast_id: Option<Uuid>,
}

/// A client changed a queued prompt: its content, its place in the queue, or both.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptChanged<'a> {
    /// The new content blocks. Absent if they stay the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>, nullable = false)]
    pub prompt: Option<&'a RawValue>,
    /// The queued prompt before which this one is now; null at the end of the queue. Absent if the place stays the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PromptId>)]
    pub before: Option<Option<PromptId>>,
    /// The principal that changed the prompt.
    pub by: &'a str,
}

/// A turn started.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptStarted<'a> {
    /// The content blocks as the agent received them. Absent after `prompt.queued`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>, nullable = false)]
    pub prompt: Option<&'a RawValue>,
    /// The principal that sent the prompt.
    pub by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idempotency_key: Option<&'a str>,
    /// The request of the ACP client that sent the prompt. Absent for a prompt over another protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_request: Option<&'a AcpRequest>,
    /// The broadcast that sent the prompt. Absent for another prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub broadcast_id: Option<Uuid>,
}

/// The agent ended the turn.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptCompleted<'a> {
    /// The stop reason of ACP: `end_turn`, `cancelled`, ...
    pub stop_reason: &'a str,
    /// The agent's answer, raw ACP.
    #[schema(value_type = Value)]
    pub result: &'a RawValue,
    /// The token usage of the turn, raw ACP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub usage: Option<&'a RawValue>,
    /// Why the gateway cancelled the turn. Absent for a turn that the agent ended itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cancel_cause: Option<CancelCause>,
    /// The request of the ACP client that sent the prompt. Absent for a prompt over another protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_request: Option<&'a AcpRequest>,
}

/// The turn failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptFailed<'a> {
    pub problem: &'a Problem,
    /// Why the gateway cancelled the turn before it failed. Absent for a turn that was not cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cancel_cause: Option<CancelCause>,
    /// The request of the ACP client that sent the prompt. Absent for a prompt over another protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_request: Option<&'a AcpRequest>,
}
