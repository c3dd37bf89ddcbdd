//! The catalogue of agents.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::types::AgentName;

/// An agent that sessions can be made of. What only its process knows is null until one has started.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    pub name: AgentName,
    /// A name for people.
    #[schema(required)]
    pub title: Option<String>,
    #[schema(required)]
    pub version: Option<String>,
    #[schema(required)]
    pub protocol_version: Option<u64>,
    /// As the agent said at `initialize`, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub agent_info: Option<Box<RawValue>>,
    #[schema(required, value_type = Option<Object>)]
    pub capabilities: Option<Box<RawValue>>,
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub auth_methods: Option<Box<RawValue>>,
    pub pool: PoolFigures,
}

/// The agent's processes, over all pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolFigures {
    pub max: usize,
    /// Processes that live or start.
    pub processes: usize,
    /// Those that start.
    pub starting: usize,
    /// Those that hold a session.
    pub leased: usize,
    /// How many should wait warm: none while the agent wants a sign-in, or when nobody has come for long.
    pub warm: usize,
    /// Those that wait warm, or for the principal whom they served before.
    pub spare: usize,
    /// Turns and sessions that wait in line for a process.
    pub waiting: usize,
    /// The agent keeps a session locked after `session/close`. The gateway found this out, and stops a process of this
    /// agent instead of reusing it for another session.
    pub keeps_sessions_locked: bool,
    /// How long a process stays with an idle session.
    pub idle_timeout_seconds: u64,
    /// The same for an agent that can neither load nor resume a session.
    pub no_load_idle_timeout_seconds: u64,
    /// How long a process of such an agent is idle before a full pool reclaims it.
    pub no_load_reclaim_timeout_seconds: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentList {
    pub agents: Vec<Agent>,
    /// Always null: the catalogue is one page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}
