//! The protocols of agents.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The protocol of an agent. Agents on other hosts use ACP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentDialect {
    /// The Agent Client Protocol.
    #[default]
    Acp,
    /// The protocol of the Claude Code CLI.
    StreamJson,
    /// The protocol of agents that were written before version 1 of ACP.
    EarlyAcp,
}

impl AgentDialect {
    /// Whether a process serves one session, for which it starts.
    pub const fn has_one_session(self) -> bool {
        matches!(self, Self::StreamJson | Self::EarlyAcp)
    }
}
