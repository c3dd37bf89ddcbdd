//! Whether an agent can start sessions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether an agent can start sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    pub state: AgentAvailability,
    /// The reason of the state `unavailable`: the error of the last start. Null in the other states.
    #[schema(required)]
    pub detail: Option<String>,
}

/// The state of an agent for new sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentAvailability {
    /// No problem is known. An agent without a process is available too.
    Available,
    /// The last start of a process, or the last connection to the other host, failed. A new session tries again.
    Unavailable,
    /// The member of the fleet lost its connection. New sessions wait for its return.
    Reconnecting,
    /// The member of the fleet is not connected. New sessions are rejected.
    Disconnected,
    /// An operator drains the member of the fleet. New sessions are rejected.
    Draining,
}
