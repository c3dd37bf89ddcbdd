//! The gateway itself: who asks, and within which limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::types::{Epoch, Limits, Scope};

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayInfo {
    /// Always `acp-gateway`.
    pub name: String,
    pub version: String,
    /// The store's token, which every event id begins with.
    #[schema(value_type = String)]
    pub epoch: Epoch,
    pub principal: PrincipalInfo,
    /// What this key allows.
    pub scopes: Vec<Scope>,
    pub limits: GatewayLimits,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrincipalInfo {
    pub id: String,
    pub tenant: String,
}

/// The limits that clients meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayLimits {
    pub body_bytes: usize,
    pub prompt_bytes: usize,
    /// Of a file that is uploaded.
    pub file_bytes: u64,
    pub queued_prompts: usize,
    pub pending_requests: usize,
    pub prompts_per_minute: u32,
    pub requests_per_minute: u32,
    pub streams: usize,
    pub live_sessions: usize,
    pub idempotency_seconds: u64,
}

impl From<&Limits> for GatewayLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            body_bytes: limits.body_bytes,
            prompt_bytes: limits.prompt_bytes,
            file_bytes: limits.file_bytes,
            queued_prompts: limits.queued_prompts,
            pending_requests: limits.pending_requests,
            prompts_per_minute: limits.prompts_per_minute,
            requests_per_minute: limits.requests_per_minute,
            streams: limits.streams,
            live_sessions: limits.live_sessions,
            idempotency_seconds: limits.idempotency.as_secs(),
        }
    }
}
