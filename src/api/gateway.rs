//! The gateway itself, with the current principal and its limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::types::{EffectiveLimits, Epoch, Limits, PrincipalLimit, Scope};

/// The gateway, and the principal of the request.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayInfo {
    /// Always `acp-gateway`.
    pub name: String,
    pub version: String,
    /// The token of the store. Every event id starts with it.
    #[schema(value_type = String)]
    pub epoch: Epoch,
    pub principal: PrincipalInfo,
    /// The scopes of the key.
    pub scopes: Vec<Scope>,
    pub limits: GatewayLimits,
}

/// The holder of the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrincipalInfo {
    /// The name of the key.
    pub id: String,
    pub tenant: String,
}

/// The limits that apply to clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayLimits {
    /// The maximum size of a request body in bytes.
    pub body_bytes: usize,
    /// The maximum size of a body with a prompt or an answer, in bytes.
    pub prompt_bytes: usize,
    /// The maximum size of an uploaded file in bytes.
    pub file_bytes: u64,
    /// The maximum number of prompts that wait in one session.
    pub queued_prompts: usize,
    /// The maximum number of agent requests that wait for an answer in one session.
    pub pending_requests: usize,
    /// The maximum number of prompts in a minute. This limit and the next four count all keys of the
    /// principal together.
    pub prompts_per_minute: u32,
    /// The maximum number of requests in a minute.
    pub requests_per_minute: u32,
    /// The maximum number of concurrent streams and held responses.
    pub streams: u32,
    /// The maximum number of sessions that have a process or wait for one.
    pub live_sessions: u32,
    /// The maximum number of prompts of the principal that wait for a process of one agent.
    pub max_queued_prompts: u32,
    /// The time in seconds for which an `Idempotency-Key` is remembered.
    pub idempotency_seconds: u64,
}

impl GatewayLimits {
    /// Combines the limits of the gateway with the limits of one principal.
    pub fn of(limits: &Limits, principal: &EffectiveLimits) -> Self {
        Self {
            body_bytes: limits.max_body_bytes,
            prompt_bytes: limits.max_prompt_bytes,
            file_bytes: limits.max_file_bytes,
            queued_prompts: limits.max_session_queued_prompts,
            pending_requests: limits.max_pending_requests,
            prompts_per_minute: principal.get(PrincipalLimit::Prompts),
            requests_per_minute: principal.get(PrincipalLimit::Requests),
            streams: principal.get(PrincipalLimit::Streams),
            live_sessions: principal.get(PrincipalLimit::LiveSessions),
            max_queued_prompts: principal.get(PrincipalLimit::QueuedPrompts),
            idempotency_seconds: limits.idempotency_key_max_age.as_secs(),
        }
    }
}
