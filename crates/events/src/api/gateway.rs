//! The gateway itself, with the user of the request and the limits of the user.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use base::types::{Epoch, Scope};

/// The gateway, and the user of the request.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayInfo {
    /// Always `acp-gateway`.
    pub name: String,
    pub version: String,
    /// The token of the store. Positions of `/v1/events` start with it. The ids of events start with a token of their session.
    #[schema(value_type = String)]
    pub epoch: Epoch,
    pub principal: PrincipalInfo,
    /// The scopes of the key.
    pub scopes: Vec<Scope>,
    pub limits: GatewayLimits,
}

/// The user to whom the key gives access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrincipalInfo {
    /// The name of the user. Sessions belong to the user.
    pub id: String,
    pub tenant: String,
}

/// The limits that apply to clients. `perSession` and `perKey` correspond to sections of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayLimits {
    /// The maximum size of a request body in bytes.
    pub max_body_bytes: usize,
    /// The maximum size of a body with a prompt or an answer, in bytes.
    pub max_prompt_bytes: usize,
    /// The maximum size of an uploaded file in bytes.
    pub max_file_bytes: u64,
    /// The time in seconds for which an `Idempotency-Key` is remembered.
    pub idempotency_key_max_age_seconds: u64,
    pub per_session: PerSessionLimits,
    pub per_key: PerKeyLimits,
}

/// The limits of each session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PerSessionLimits {
    /// The maximum number of prompts that wait in the session.
    pub max_queued_prompts: usize,
    /// The maximum number of agent requests that wait for an answer.
    pub max_pending_requests: usize,
}

/// The limits of the user. All keys of the user count together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PerKeyLimits {
    /// The maximum number of requests in a minute.
    pub max_requests_per_minute: u32,
    /// The maximum number of prompts in a minute.
    pub max_prompts_per_minute: u32,
    /// The maximum number of concurrent streams and held responses.
    pub max_streams: u32,
    /// The maximum number of sessions that have a process or wait for one.
    pub max_live_sessions: u32,
    /// The maximum number of prompts and calls that wait for a process of one agent.
    pub max_queued_prompts: u32,
    /// The maximum number of bytes of tasks that wait for a process.
    pub max_queued_task_bytes: u32,
    /// The maximum number of members of the fleet.
    pub max_fleet_members: u32,
}
