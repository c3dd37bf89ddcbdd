//! Requests of the agent that clients answer, and calls of methods of the agent.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use base::types::{PromptId, RequestId, Timestamp};

use super::present;
use super::schema::RequestParams;
use base::schemas_from_json;

/// A request that waits for an answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingRequest {
    pub request_id: RequestId,
    /// The ACP method, such as `session/request_permission`.
    pub method: String,
    /// Raw ACP, with the gateway's `sessionId`.
    #[schema(value_type = RequestParams)]
    pub params: Box<RawValue>,
    /// The turn of the request; null outside a turn.
    #[schema(required)]
    pub prompt_id: Option<PromptId>,
    /// The agent's id of the child session that sent the request. Absent for the session itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    /// The ACP client that alone can answer: the client of `/acp` that started the turn. Absent if every client can answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_client: Option<String>,
    pub created_at: Timestamp,
    /// The time at which the gateway answers the request if no client has answered. Null if it has no deadline.
    #[schema(required)]
    pub deadline: Option<Timestamp>,
}

/// The agent's requests that wait for an answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingRequests {
    pub requests: Vec<PendingRequest>,
    /// Always null: all pending requests fit on one page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// The answer to a request of any method: either `result` or `error`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestAnswer {
    /// The result, raw ACP. It is passed to the agent unchanged. `null` is a valid result.
    #[serde(default, deserialize_with = "present")]
    pub result: Option<Box<RawValue>>,
    /// A JSON-RPC error.
    pub error: Option<Box<RawValue>>,
}

/// The answer to a permission request: either `optionId` or `cancelled`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionAnswer {
    /// The `optionId` of an option that the agent offered.
    pub option_id: Option<String>,
    /// Must be true if present.
    pub cancelled: Option<bool>,
}

schemas_from_json!(RequestAnswer, PermissionAnswer);

/// The action in an answer to an elicitation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ElicitationAction {
    Accept,
    Decline,
    Cancel,
}

/// The answer to an elicitation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ElicitationAnswer {
    pub action: ElicitationAction,
    /// The values of the form. Only with the action `accept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub content: Option<Box<RawValue>>,
}

/// A call of a method that the agent's entry allows (`rpc`).
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RpcCall {
    /// The name of the method.
    pub method: String,
    /// The params, an object that is sent unchanged. The default is `{}`.
    #[schema(value_type = Option<Object>)]
    pub params: Option<Box<RawValue>>,
    /// If true, the gateway sends a notification, and the agent does not answer.
    #[serde(default)]
    pub notify: bool,
}

/// The result of a call.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RpcResult {
    /// The agent's result, raw.
    #[schema(value_type = Value)]
    pub result: Box<RawValue>,
}

/// A JSON-RPC error of the agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub data: Option<Box<RawValue>>,
}
