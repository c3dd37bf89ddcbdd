//! Events about terminals.

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::TerminalId;

/// The gateway runs a command for the agent.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalCreated<'a> {
    pub terminal_id: TerminalId,
    pub command: &'a str,
    pub args: &'a [String],
    pub cwd: &'a str,
}

/// A terminal printed output.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalOutput<'a> {
    pub terminal_id: TerminalId,
    /// The number of output bytes before `data`. It counts output that the log omitted, so it may exceed the
    /// logged bytes.
    pub offset: u64,
    /// Output of the command to stdout and stderr, as complete characters.
    pub data: &'a str,
}

/// The last event of a terminal.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalExited<'a> {
    pub terminal_id: TerminalId,
    #[schema(required)]
    pub exit_code: Option<i32>,
    /// A signal name such as `SIGKILL`. If `exitCode` is null too, the cause of the exit is unknown.
    #[schema(required)]
    pub signal: Option<&'a str>,
}
