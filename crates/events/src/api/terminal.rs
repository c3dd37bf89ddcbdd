//! Terminals that the gateway runs for an agent.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use base::types::{EventId, PromptId, TerminalId, Timestamp};

/// The exit status of a terminal's command. If both members are null, the cause of the exit is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalExit {
    /// The exit code; null if a signal ended the command.
    #[schema(required)]
    pub exit_code: Option<i32>,
    /// A signal name such as `SIGKILL`.
    #[schema(required)]
    pub signal: Option<String>,
}

/// A terminal that the gateway runs for an agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terminal {
    pub terminal_id: TerminalId,
    /// The turn that started the terminal.
    #[schema(required)]
    pub prompt_id: Option<PromptId>,
    pub command: String,
    pub args: Vec<String>,
    pub cwd: String,
    pub created_at: Timestamp,
    /// Null while the command is running.
    #[schema(required)]
    pub exit_status: Option<TerminalExit>,
}

/// The terminals of a session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalList {
    /// The terminals, the newest first.
    pub terminals: Vec<Terminal>,
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A terminal and the last part of its output, folded from the log.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalWindow {
    #[serde(flatten)]
    pub terminal: Terminal,
    /// The last part of the output, as text.
    pub output: String,
    /// The number of output bytes before `output`.
    pub offset: u64,
    /// True if earlier output is missing.
    pub truncated: bool,
    /// The cursor for `after` on the session's events. The stream then continues after this state.
    pub last_event_id: EventId,
}
