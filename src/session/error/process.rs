//! Why a session has no process, and the problems of errors of the pool and of agents.

use std::time::Duration;

use super::shared::InputError;
use super::{RETRY_AFTER, ToProblem, transient};
use crate::acp::error_code;
use crate::agent::{AgentExit, AgentFailure};
use crate::api::{Problem, ProblemCode, RpcError};
use crate::jsonrpc;
use crate::pool::{AcquireError, ShortLeaseError};
use crate::types::{FolderError, LimitExceeded, PrincipalLimit};

/// Why a session gets no process or does not keep it, or why its agent failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProcessError {
    /// The agent does not support a member of the request for the session.
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    #[error(transparent)]
    Agent(#[from] AgentFailure),
    #[error("every process of this agent is busy; retry later, or cancel a turn")]
    Busy,
    #[error("the session is closed; attach opens it again")]
    Closed,
    #[error(
        "the session's hourly write quota is exceeded (`limits.per_session.max_bytes_per_hour`, `limits.per_session.max_events_per_hour`)"
    )]
    Quota { retry_after: Duration },
    /// The agent has the session, or may have it.
    #[error("the agent did not restore the session: {0}; the conversation is kept, so try again")]
    NotRestored(jsonrpc::RpcError),
    /// The resource that a client named does not exist.
    #[error("the agent did not find the resource: {0}")]
    NoSuchResource(jsonrpc::RpcError),
}

impl ProcessError {
    pub(in crate::session) const DRAINING: Self = Self::Acquire(AcquireError::Draining);

    /// The agent lacks the method or the capability.
    pub(in crate::session) fn unsupported(method: impl Into<String>) -> Self {
        Self::Agent(AgentFailure::Unsupported {
            method: method.into(),
        })
    }
}

impl ToProblem for ProcessError {
    fn problem(&self) -> Problem {
        let new = |code| Problem::new(code, self.to_string());
        match self {
            Self::Input(error) => error.problem(),
            Self::Acquire(error) => error.problem(),
            Self::Agent(failure) => failure.problem(),
            Self::Busy => transient(self, ProblemCode::PoolFull, RETRY_AFTER),
            Self::Closed => new(ProblemCode::SessionClosed),
            Self::Quota { retry_after } => transient(self, ProblemCode::RateLimited, *retry_after),
            Self::NotRestored(error) => {
                let problem = transient(self, ProblemCode::AgentError, RETRY_AFTER);
                Problem {
                    acp: Some(acp_error(error)),
                    retryable: true,
                    ..problem
                }
            }
            Self::NoSuchResource(error) => Problem {
                acp: Some(acp_error(error)),
                ..new(ProblemCode::NotFound)
            },
        }
    }

    fn limit(&self) -> Option<&LimitExceeded> {
        match self {
            Self::Acquire(error) => error.limit(),
            _ => None,
        }
    }
}

impl ToProblem for AcquireError {
    fn problem(&self) -> Problem {
        match self {
            Self::NoSuchAgent => Problem::invalid("/agent", self.to_string()),
            Self::Limit(exceeded) => exceeded.problem(),
            Self::QueueFull { retry_after, .. }
            | Self::Busy { retry_after }
            | Self::BreakerOpen { retry_after }
            | Self::SignInInProgress { retry_after } => {
                transient(self, ProblemCode::PoolFull, *retry_after)
            }
            Self::Draining => transient(self, ProblemCode::Draining, RETRY_AFTER),
        }
    }

    fn limit(&self) -> Option<&LimitExceeded> {
        match self {
            Self::Limit(exceeded) => Some(exceeded),
            _ => None,
        }
    }
}

impl ToProblem for LimitExceeded {
    fn problem(&self) -> Problem {
        let code = match self.limit {
            PrincipalLimit::QueuedPrompts | PrincipalLimit::QueuedTaskBytes => {
                ProblemCode::QueueFull
            }
            _ => ProblemCode::RateLimited,
        };
        let retry_after_seconds = Some(self.retry_after_seconds());
        Problem {
            retry_after_seconds,
            ..Problem::new(code, self.to_string())
        }
    }

    fn limit(&self) -> Option<&LimitExceeded> {
        Some(self)
    }
}

delegate_to_parts!(ShortLeaseError { Acquire, Agent });

impl ToProblem for AgentFailure {
    fn problem(&self) -> Problem {
        let new = |code| Problem::new(code, self.to_string());
        match self {
            Self::Rpc(error) => {
                let problem = new(match error.code {
                    error_code::INVALID_PARAMS => ProblemCode::Invalid,
                    error_code::METHOD_NOT_FOUND => ProblemCode::AgentUnsupported,
                    _ => ProblemCode::AgentError,
                });
                let passes = problem.code == ProblemCode::AgentError && error.is_transient();
                Problem {
                    retryable: problem.retryable || passes,
                    acp: Some(acp_error(error)),
                    ..problem
                }
            }
            Self::AuthRequired {
                auth_methods,
                error,
                ..
            } => Problem {
                auth_methods: auth_methods.clone(),
                acp: Some(acp_error(error)),
                ..new(ProblemCode::AgentAuthRequired)
            },
            Self::Unsupported { .. } => new(ProblemCode::AgentUnsupported),
            Self::Start { .. } | Self::Folder(FolderError::Unusable { .. }) => {
                new(ProblemCode::AgentStartFailed)
            }
            Self::Folder(FolderError::Missing { .. }) => new(ProblemCode::NotFound),
            Self::Folder(FolderError::Replaced { .. } | FolderError::OutsideRoots { .. }) => {
                new(ProblemCode::Forbidden)
            }
            Self::Member(_) | Self::Exited(AgentExit { is_lost: true, .. }) => {
                new(ProblemCode::MemberUnavailable)
            }
            Self::Exited(exit) => {
                let problem = new(ProblemCode::AgentExited);
                Problem {
                    retryable: problem.retryable && !exit.lacks_program(),
                    exit_code: Some(exit.exit_code),
                    signal: Some(exit.signal.clone()),
                    stderr_tail: Some(exit.stderr_tail.clone()),
                    ..problem
                }
            }
            Self::Disconnected { .. } => new(ProblemCode::AgentDisconnected),
            Self::Draining => transient(self, ProblemCode::Draining, RETRY_AFTER),
            Self::Timeout { .. } | Self::StartTimeout { .. } => new(ProblemCode::AgentTimeout),
        }
    }
}

fn acp_error(error: &jsonrpc::RpcError) -> RpcError {
    RpcError {
        code: error.code,
        message: error.message.clone(),
        data: error.data.clone(),
    }
}
