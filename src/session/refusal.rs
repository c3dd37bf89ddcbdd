//! The errors of the session's actor, and the problems that clients receive.

use std::time::Duration;

use super::error::{InputError, SessionError, ToProblem};
use crate::acp::error_code;
use crate::agent::{AgentExit, AgentFailure, without_secrets};
use crate::api::{Problem, ProblemCode, Resolution, RpcError};
use crate::pool::{AcquireError, Lease, ShortLeaseError};
use crate::types::{LimitExceeded, PrincipalLimit, PromptId, RequestId};

/// The error of a command to the actor, or of a turn.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("there is no such {0} in this session")]
    NotFound(&'static str),
    #[error("the session is closed; attach opens it again")]
    Closed,
    #[error("turn {0} is running; wait, cancel it, or send queue: true")]
    TurnRunning(PromptId),
    #[error("too many queued prompts (limit {0}, `limits.per_session.max_queued_prompts`)")]
    QueueFull(usize),
    #[error("request {id} is already resolved")]
    RequestResolved { id: RequestId, resolution: Resolution, by: Option<String> },
    #[error("the session has changed since the ETag in If-Match")]
    PreconditionFailed,
    #[error("{0}")]
    PoolFull(String, Duration),
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error(
        "the session's hourly write quota is exceeded (`limits.per_session.max_bytes_per_hour`, `limits.per_session.max_events_per_hour`)"
    )]
    Quota(Duration),
    #[error("the agent crashed too often in turns of this session; prompts are refused for {} s", .0.as_secs().max(1))]
    CrashLoop(Duration),
    #[error("the gateway is shutting down")]
    Draining,
    #[error("{0}")]
    Agent(#[from] AgentFailure),
    /// The agent has the session, or may have it.
    #[error("the agent did not restore the session: {0}; the conversation is kept, so try again")]
    NotRestored(crate::jsonrpc::RpcError),
    /// The resource that a client named does not exist.
    #[error("the agent did not find the resource: {0}")]
    NoSuchResource(crate::jsonrpc::RpcError),
}

impl Refusal {
    fn code(&self) -> ProblemCode {
        match self {
            Self::Session(error) => error.problem().code,
            Self::Input(error) => error.problem().code,
            Self::NotFound(_) | Self::NoSuchResource(_) => ProblemCode::NotFound,
            Self::Closed => ProblemCode::SessionClosed,
            Self::TurnRunning(_) => ProblemCode::TurnRunning,
            Self::RequestResolved { .. } => ProblemCode::RequestResolved,
            Self::PreconditionFailed => ProblemCode::PreconditionFailed,
            Self::PoolFull(..) => ProblemCode::PoolFull,
            Self::QueueFull(_) | Self::Limit(LimitExceeded { limit: PrincipalLimit::QueuedPrompts, .. }) => {
                ProblemCode::QueueFull
            }
            Self::Limit(_) | Self::Quota(_) => ProblemCode::RateLimited,
            Self::CrashLoop(_) => ProblemCode::CrashLoop,
            Self::Draining => ProblemCode::Draining,
            Self::Agent(failure) => agent_code(failure),
            Self::NotRestored(_) => ProblemCode::AgentError,
        }
    }
}

impl ToProblem for Refusal {
    fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.code(), self.to_string());
        match self {
            Self::Session(error) => return error.problem(),
            Self::Input(error) => return error.problem(),
            Self::TurnRunning(prompt) => problem.prompt_id = Some(*prompt),
            Self::RequestResolved { id, resolution, by } => {
                problem.request_id = Some(*id);
                problem.resolution = Some(*resolution);
                problem.by.clone_from(by);
            }
            Self::PoolFull(_, after) | Self::Quota(after) | Self::CrashLoop(after) => {
                problem.retry_after_seconds = Some(after.as_secs().max(1));
            }
            Self::Limit(exceeded) => problem.retry_after_seconds = Some(exceeded.retry_after_seconds()),
            Self::QueueFull(_) | Self::Draining => problem.retry_after_seconds = Some(5),
            Self::Agent(failure) => describe(&mut problem, failure),
            Self::NotRestored(error) => {
                problem.acp = Some(acp_error(error));
                problem.retryable = true;
                problem.retry_after_seconds = Some(5);
            }
            Self::NoSuchResource(error) => problem.acp = Some(acp_error(error)),
            Self::NotFound(_) | Self::Closed | Self::PreconditionFailed => {}
        }
        problem
    }

    fn limit(&self) -> Option<&LimitExceeded> {
        match self {
            Self::Limit(exceeded) => Some(exceeded),
            _ => None,
        }
    }
}

fn agent_code(failure: &AgentFailure) -> ProblemCode {
    match failure {
        AgentFailure::Rpc(error) => match error.code {
            error_code::INVALID_PARAMS => ProblemCode::Invalid,
            error_code::METHOD_NOT_FOUND => ProblemCode::AgentUnsupported,
            _ => ProblemCode::AgentError,
        },
        AgentFailure::AuthRequired { .. } => ProblemCode::AgentAuthRequired,
        AgentFailure::Unsupported { .. } => ProblemCode::AgentUnsupported,
        AgentFailure::Start { .. } => ProblemCode::AgentStartFailed,
        AgentFailure::Exited(_) => ProblemCode::AgentExited,
        AgentFailure::Draining => ProblemCode::Draining,
        AgentFailure::Timeout { .. } | AgentFailure::StartTimeout { .. } => ProblemCode::AgentTimeout,
    }
}

fn acp_error(error: &crate::jsonrpc::RpcError) -> RpcError {
    RpcError { code: error.code, message: error.message.clone(), data: error.data.clone() }
}

fn describe(problem: &mut Problem, failure: &AgentFailure) {
    match failure {
        AgentFailure::Rpc(error) => {
            problem.retryable |= problem.code == ProblemCode::AgentError && error.is_transient();
            problem.acp = Some(acp_error(error));
        }
        AgentFailure::AuthRequired { auth_methods, error, .. } => {
            problem.auth_methods.clone_from(auth_methods);
            problem.acp = Some(acp_error(error));
        }
        AgentFailure::Exited(AgentExit { exit_code, signal, stderr_tail, .. }) => {
            problem.exit_code = Some(*exit_code);
            problem.signal = Some(signal.clone());
            problem.stderr_tail = Some(stderr_tail.clone());
        }
        AgentFailure::Draining => problem.retry_after_seconds = Some(5),
        AgentFailure::Unsupported { .. }
        | AgentFailure::Start { .. }
        | AgentFailure::StartTimeout { .. }
        | AgentFailure::Timeout { .. } => {}
    }
}

/// Converts a JSON-RPC error of the agent. Detects that a sign-in is required and reports it to the pool.
pub(super) fn agent_failure(error: crate::jsonrpc::RpcError, lease: &Lease) -> AgentFailure {
    let process = lease.process();
    // An ACP v2 error can come from an update, which is stored as the agent sent it.
    let error = without_secrets(error, &process.spec.secrets);
    let failure = AgentFailure::from_rpc_error(error, &process.spec, &process.initialized);
    if matches!(failure, AgentFailure::AuthRequired { .. }) {
        lease.record_auth(true);
    }
    failure
}

/// Converts the error response to a prompt. An agent may require a sign-in only for the first prompt.
pub(super) fn prompt_failure(error: crate::jsonrpc::RpcError, lease: &Lease) -> AgentFailure {
    let failure = agent_failure(error, lease);
    if matches!(failure, AgentFailure::AuthRequired { .. }) {
        lease.record_prompt_auth(false);
    }
    failure
}

impl From<ShortLeaseError> for Refusal {
    fn from(none: ShortLeaseError) -> Self {
        match none {
            ShortLeaseError::Refused(refused) => refused.into(),
            ShortLeaseError::Agent(failure) => failure.into(),
        }
    }
}

impl From<AcquireError> for Refusal {
    fn from(refused: AcquireError) -> Self {
        match refused {
            AcquireError::NoSuchAgent => {
                InputError::invalid("/agent", "no agent of that name is configured").into()
            }
            AcquireError::Limit(exceeded) => Self::Limit(exceeded),
            AcquireError::QueueFull { retry_after, .. }
            | AcquireError::Busy { retry_after }
            | AcquireError::BreakerOpen { retry_after }
            | AcquireError::SignInInProgress { retry_after } => {
                Self::PoolFull(refused.to_string(), retry_after)
            }
            AcquireError::Draining => Self::Draining,
        }
    }
}
