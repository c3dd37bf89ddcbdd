//! Events about requests of the agent.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::Resolution;
use crate::api::schema::RequestParams;
use crate::types::{RequestId, Timestamp};

/// The agent sent a request that clients can answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestCreated<'a> {
    pub request_id: RequestId,
    pub method: &'a str,
    /// Raw ACP, with the gateway's `sessionId`.
    #[schema(value_type = RequestParams)]
    pub params: &'a RawValue,
    /// The agent's id of the child session that sent the request. Absent for the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<&'a str>,
    /// The ACP client that alone can answer: the client of `/acp` that started the turn. Absent if every client can answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_client: Option<&'a str>,
    /// The time at which the gateway answers the request if no client has answered. Absent if it has no
    /// deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub deadline: Option<Timestamp>,
}

/// A request of the agent was answered or ended in another way.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestResolved<'a> {
    pub request_id: RequestId,
    pub method: &'a str,
    /// The tool call of a permission request, if the request names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tool_call_id: Option<&'a str>,
    pub resolution: Resolution,
    /// The ACP client that alone could answer. Absent if every client could answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_client: Option<&'a str>,
    /// The principal that answered. Absent unless a client answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub error: Option<&'a RawValue>,
}

/// The agent reported that an elicitation with mode `url` is complete.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationCompleted<'a> {
    pub elicitation_id: &'a str,
    /// Other members that the agent sent, raw.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub more: Option<&'a RawValue>,
}
