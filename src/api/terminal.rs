//! Terminals that the gateway runs for an agent.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::types::{EventId, PromptId, TerminalId, Timestamp};

/// How a terminal's command ended. Both are null when nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalExit {
    #[schema(required)]
    pub exit_code: Option<i32>,
    /// Spelled as in `SIGKILL`.
    #[schema(required)]
    pub signal: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terminal {
    pub terminal_id: TerminalId,
    /// The turn that it was started in.
    #[schema(required)]
    pub prompt_id: Option<PromptId>,
    pub command: String,
    pub args: Vec<String>,
    pub cwd: String,
    pub created_at: Timestamp,
    /// Null while the command runs.
    #[schema(required)]
    pub exit_status: Option<TerminalExit>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalList {
    /// The newest first.
    pub terminals: Vec<Terminal>,
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A terminal with the last of its output, folded from the log.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalWindow {
    #[serde(flatten)]
    pub terminal: Terminal,
    pub output: String,
    /// Bytes that came before `output`.
    pub offset: u64,
    /// Something before `output` has gone.
    pub truncated: bool,
    /// What it is exact at: `?after=` it gives what follows.
    pub last_event_id: EventId,
}
