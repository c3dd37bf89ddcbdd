//! The processes of an agent.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::types::{ProcessState, PromptId, SessionId, Timestamp};

/// A process of an agent, or a connection to an agent on another host.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentProcess {
    /// The id of the process from its start to its end. It is not a process id of the operating system.
    pub agent_id: Uuid,
    pub state: ProcessState,
    /// The running turn. Null if the process has none.
    #[schema(required)]
    pub current_task: Option<CurrentTask>,
    /// The time in seconds since the gateway started the process. After a restart of the gateway, the time of a process that
    /// outlived it begins again.
    pub uptime_seconds: u64,
}

/// The running turn of a process.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentTask {
    pub session_id: SessionId,
    pub prompt_id: PromptId,
    /// When the process got the turn.
    pub started_at: Timestamp,
}

/// The processes of an agent, the oldest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentProcessList {
    pub processes: Vec<AgentProcess>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}
