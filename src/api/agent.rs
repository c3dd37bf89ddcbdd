//! The catalogue of agents.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::agent_status::AgentStatus;
use crate::types::{AgentDialect, AgentKind, AgentName, AppliedIsolation};

/// An agent of the catalogue. Members that only a process of the agent can report are null until a process
/// has started.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The name of the agent in requests.
    pub name: AgentName,
    /// Where the agent runs.
    pub kind: AgentKind,
    /// The protocol of the agent. Clients use the same requests and events for all of them.
    pub dialect: AgentDialect,
    pub status: AgentStatus,
    /// The display name.
    #[schema(required)]
    pub title: Option<String>,
    /// The version that the agent reports.
    #[schema(required)]
    pub version: Option<String>,
    /// The negotiated version of ACP.
    #[schema(required)]
    pub protocol_version: Option<u64>,
    /// The agent's `agentInfo` from `initialize`, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub agent_info: Option<Box<RawValue>>,
    /// The agent's capabilities from `initialize`, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub capabilities: Option<Box<RawValue>>,
    /// The agent's sign-in methods from `initialize`, raw ACP.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub auth_methods: Option<Box<RawValue>>,
    /// The isolation of the agent's processes. Null if they run on another host. A session can have a lower mechanism, see
    /// its `isolation`.
    #[schema(required)]
    pub isolation: Option<AppliedIsolation>,
    pub pool: PoolFigures,
}

/// Statistics of the agent's processes, summed over all pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolFigures {
    /// The maximum number of processes.
    pub max_size: usize,
    /// The number of processes that run or start.
    pub processes: usize,
    /// The number of processes that start.
    pub starting: usize,
    /// The number of processes that hold a session.
    pub leased: usize,
    /// The target number of idle processes. It is 0 while the agent requires a sign-in, and after a long time
    /// without use.
    pub min_idle: usize,
    /// The number of idle processes: ready for any session, or reserved for the principal that used them last.
    pub idle: usize,
    /// The number of turns and sessions that wait for a process.
    pub waiting: usize,
    /// True if the agent keeps a session locked after `session/close`. The gateway detects this at run time.
    /// It then stops a process of this agent instead of reusing it for another session.
    pub keeps_sessions_locked: bool,
    /// The time in seconds that a process stays with an idle session.
    pub idle_timeout_seconds: u64,
    /// The same time for an agent that can neither load nor resume a session.
    pub no_load_idle_timeout_seconds: u64,
    /// The time in seconds that a process of such an agent must be idle before a full pool reclaims it.
    pub no_load_reclaim_timeout_seconds: u64,
}

/// The catalogue of agents.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentList {
    pub agents: Vec<Agent>,
    /// Always null: the catalogue is one page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// An agent of the registry, which the operator can install.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallableAgent {
    /// The id for `acp-gateway agent add`.
    pub id: String,
    pub name: String,
    pub version: String,
    pub description: String,
    /// The distributions for this machine: `binary`, `npx` or `uvx`. Empty if there is none.
    pub kinds: Vec<String>,
}

/// The agents of the registry.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallableAgentList {
    /// Whether `registry.source` names a registry.
    pub configured: bool,
    pub agents: Vec<InstallableAgent>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}
