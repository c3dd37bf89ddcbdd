//! Kinds of agents by their location.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where an agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// A child process of the gateway.
    Local,
    /// An agent on another host, to which the gateway connects.
    Remote,
    /// A member of the fleet, which connects to the gateway.
    Fleet,
}
