//! How an agent can fail those who use it.

use std::fmt;

use serde_json::value::RawValue;

use crate::acp::{InitializeResult, error_code};
use crate::jsonrpc::RpcError;

/// How a process ended, and why we ended it if we did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ended {
    pub exit_code: Option<i32>,
    /// As the system spells it: `SIGKILL`.
    pub signal: Option<String>,
    pub stderr_tail: String,
    /// Our own reason: a line that was too long, a flood of bad lines, a stdin that nobody read.
    pub reason: Option<String>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, &self.signal, self.exit_code) {
            (Some(reason), _, _) => write!(f, "it was ended: {reason}"),
            (None, Some(signal), _) => write!(f, "it was ended by {signal}"),
            (None, None, Some(code)) => write!(f, "it ended with code {code}"),
            (None, None, None) => f.write_str("it closed its stdout"),
        }
    }
}

/// Why a call to an agent, or its start, did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentFailure {
    #[error("the agent answered with an error: {0}")]
    Rpc(RpcError),
    #[error("the agent wants its user to sign in first")]
    AuthRequired { auth_methods: Option<Box<RawValue>>, error: RpcError },
    #[error("the agent cannot do {method}")]
    Unsupported { method: String },
    #[error("the agent could not be started: {detail}")]
    Start { detail: String },
    #[error("the agent's process is gone: {0}")]
    Exited(Ended),
    #[error("the gateway is shutting down")]
    Draining,
    #[error("the agent did not answer {method} in time")]
    Timeout { method: String },
}

impl AgentFailure {
    /// Its entry was taken out of the configuration.
    pub fn removed() -> Self {
        let detail =
            "it is no longer in the gateway's configuration; what it said can still be read".to_owned();
        Self::Start { detail }
    }

    /// An agent's error as the answer to a call, with the sign-in told apart.
    pub fn answered(error: RpcError, initialized: &InitializeResult) -> Self {
        if error.code == error_code::AUTH_REQUIRED {
            Self::AuthRequired { auth_methods: initialized.auth_methods.clone(), error }
        } else {
            Self::Rpc(error)
        }
    }
}
