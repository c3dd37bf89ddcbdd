//! The failures of an agent.

use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;

use super::next_step::next_step;
use super::spec::AgentSpec;
use crate::acp::{InitializeResult, sign_in};
use crate::fleet::FleetError;
use crate::jsonrpc::RpcError;
use crate::process::SpawnError;
use crate::types::{AgentName, FolderError};

/// How a process ended, and why the gateway stopped it if it did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentExit {
    pub exit_code: Option<i32>,
    /// The name of the signal, as in `SIGKILL`.
    pub signal: Option<String>,
    pub stderr_tail: String,
    /// The gateway's reason: a line that was too long, a flood of invalid lines, or a stdin that the agent did not
    /// read.
    pub reason: Option<String>,
    /// The limit for which the kernel killed the process.
    pub exceeded_limit: Option<Box<str>>,
    /// Whether the connection to the agent's host was lost, for `reason`. Nobody knows how the process ended.
    pub is_lost: bool,
    /// Why the connection ended, if the agent runs on another host.
    pub disconnected: Option<Box<str>>,
}

impl fmt::Display for AgentExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (None, Some(reason)) = (&self.reason, &self.disconnected) {
            return f.write_str(reason);
        }
        match (&self.reason, &self.signal, self.exit_code) {
            (Some(reason), _, _) if self.is_lost => f.write_str(reason),
            (Some(reason), _, _) => write!(f, "stopped by the gateway: {reason}"),
            (None, Some(signal), _) => {
                write!(f, "ended by signal {signal}")?;
                self.exceeded_limit
                    .as_ref()
                    .map_or(Ok(()), |limit| write!(f, ": it exceeded {limit}"))
            }
            (None, None, Some(code)) => write!(f, "exited with code {code}"),
            (None, None, None) => f.write_str("closed its stdout"),
        }
    }
}

/// The label before the output of a process in an error.
const OUTPUT_LABEL: &str = "; the end of its output to stderr: ";

/// Why a call to an agent, or its start, failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentFailure {
    #[error("the agent answered with an error: {0}")]
    Rpc(RpcError),
    #[error("the agent needs a sign-in: {error}. {next_step}")]
    AuthRequired {
        auth_methods: Option<Box<RawValue>>,
        error: RpcError,
        /// The next step for a person, in one sentence.
        next_step: String,
    },
    #[error("the agent does not support {method}")]
    Unsupported { method: String },
    #[error("could not start the agent: {detail}")]
    Start { detail: String },
    /// The agent cannot use a folder of the session. Other sessions are not affected.
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the agent's process ended: {0}")]
    Exited(AgentExit),
    /// The member of the fleet does not provide the process.
    #[error(transparent)]
    Member(#[from] FleetError),
    /// The connection to an agent on another host failed or was lost.
    #[error("no connection to the agent: {reason}")]
    Disconnected { reason: String },
    #[error("the gateway is shutting down")]
    Draining,
    #[error("the agent did not answer {method} in time{output}")]
    Timeout {
        method: String,
        /// The agent's last text on stdout that is not JSON-RPC, as the end of the sentence.
        output: String,
    },
    /// The start timeout of the agent's entry expired.
    #[error(
        "the agent did not answer initialize within {timeout:?} (agents.{agent}.start_timeout){output}"
    )]
    StartTimeout {
        agent: AgentName,
        timeout: Duration,
        /// As in `Timeout`.
        output: String,
        stderr_tail: String,
    },
}

impl From<AgentExit> for AgentFailure {
    fn from(exit: AgentExit) -> Self {
        match exit.disconnected {
            Some(_) => Self::Disconnected {
                reason: exit.to_string(),
            },
            None => Self::Exited(exit),
        }
    }
}

impl From<SpawnError> for AgentFailure {
    fn from(error: SpawnError) -> Self {
        match error {
            SpawnError::Folder(error) => error.into(),
            error => Self::Start {
                detail: with_cause(&error),
            },
        }
    }
}

impl AgentExit {
    /// Whether a shell or `env` reported that the agent's program does not exist or cannot be executed.
    pub fn lacks_program(&self) -> bool {
        self.reason.is_none() && matches!(self.exit_code, Some(126 | 127))
    }
}

impl AgentFailure {
    /// Whether a start with the same entry fails in the same way: the program is missing, or the gateway refuses to start it.
    pub fn is_fixed(&self) -> bool {
        match self {
            Self::Start { .. } => true,
            Self::Exited(exit) => exit.lacks_program(),
            _ => false,
        }
    }

    /// The error as one line, with the last output of the process to stderr. The output is masked. At most `max` bytes.
    pub fn with_output(&self, max: usize) -> String {
        let mut text = self.to_string();
        text.truncate(text.floor_char_boundary(max));
        let (Self::Exited(AgentExit { stderr_tail, .. }) | Self::StartTimeout { stderr_tail, .. }) =
            self
        else {
            return text;
        };
        let output = stderr_tail.split_whitespace().collect::<Vec<_>>().join(" ");
        let left = max.saturating_sub(text.len() + OUTPUT_LABEL.len());
        let from = output.ceil_char_boundary(output.len().saturating_sub(left));
        if !output[from..].is_empty() {
            text.push_str(OUTPUT_LABEL);
            text.push_str(&output[from..]);
        }
        text
    }

    /// Whether only one session causes the failure, so that a start for another session can succeed.
    pub fn is_of_session(&self) -> bool {
        matches!(self, Self::Folder(_) | Self::Member(_))
    }

    /// The failure for an entry that was removed from the configuration.
    pub fn removed() -> Self {
        let detail =
            "it is no longer in the gateway's configuration; its sessions can still be read"
                .to_owned();
        Self::Start { detail }
    }

    /// Converts an error response. A missing sign-in has its own variant.
    pub fn from_rpc_error(
        error: RpcError,
        spec: &AgentSpec,
        initialized: &InitializeResult,
    ) -> Self {
        if sign_in::is_required(&error) {
            let next_step = next_step(spec, initialized);
            Self::AuthRequired {
                auth_methods: initialized.auth_methods.clone(),
                error,
                next_step,
            }
        } else {
            Self::Rpc(error)
        }
    }
}

/// An error with its cause: the operator must see that a file is not executable, for example.
pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
