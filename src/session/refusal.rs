//! The error of operations that change a session or need its process, and the problems that clients receive.

use std::time::Duration;

use super::error::{InputError, SessionError, ToProblem};
use crate::acp::error_code;
use crate::agent::{AgentExit, AgentFailure, without_secrets};
use crate::api::{Problem, ProblemCode, Resolution, RpcError};
use crate::pool::{AcquireError, Lease, ShortLeaseError};
use crate::types::{LimitExceeded, PrincipalLimit, PromptId, RequestId};

/// The error of an operation on a session, or of a turn. Reads fail only with [`SessionError`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Session(SessionError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("there is no such {0} in this session")]
    NotFound(&'static str),
    #[error("the Idempotency-Key was used with another body")]
    IdempotencyMismatch,
    #[error("the first request with this Idempotency-Key is still in flight")]
    IdempotencyInFlight,
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
    /// The agent lacks the method or the capability.
    pub(super) fn unsupported(method: impl Into<String>) -> Self {
        Self::Agent(AgentFailure::Unsupported { method: method.into() })
    }
}

impl ToProblem for Refusal {
    fn code(&self) -> ProblemCode {
        match self {
            Self::Session(error) => error.code(),
            Self::Input(error) => error.code(),
            Self::NotFound(_) | Self::NoSuchResource(_) => ProblemCode::NotFound,
            Self::IdempotencyMismatch => ProblemCode::IdempotencyMismatch,
            Self::IdempotencyInFlight => ProblemCode::IdempotencyInFlight,
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
            Self::Agent(failure) => failure.code(),
            Self::NotRestored(_) => ProblemCode::AgentError,
        }
    }

    fn add_members(&self, problem: &mut Problem) {
        match self {
            Self::Session(error) => error.add_members(problem),
            Self::Input(error) => error.add_members(problem),
            Self::Agent(failure) => failure.add_members(problem),
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
            Self::NotRestored(error) => {
                problem.acp = Some(acp_error(error));
                problem.retryable = true;
                problem.retry_after_seconds = Some(5);
            }
            Self::NoSuchResource(error) => problem.acp = Some(acp_error(error)),
            _ => {}
        }
    }

    fn limit(&self) -> Option<&LimitExceeded> {
        match self {
            Self::Limit(exceeded) => Some(exceeded),
            _ => None,
        }
    }
}

impl ToProblem for AgentFailure {
    fn code(&self) -> ProblemCode {
        match self {
            Self::Rpc(error) => match error.code {
                error_code::INVALID_PARAMS => ProblemCode::Invalid,
                error_code::METHOD_NOT_FOUND => ProblemCode::AgentUnsupported,
                _ => ProblemCode::AgentError,
            },
            Self::AuthRequired { .. } => ProblemCode::AgentAuthRequired,
            Self::Unsupported { .. } => ProblemCode::AgentUnsupported,
            Self::Start { .. } => ProblemCode::AgentStartFailed,
            Self::Exited(_) => ProblemCode::AgentExited,
            Self::Draining => ProblemCode::Draining,
            Self::Timeout { .. } | Self::StartTimeout { .. } => ProblemCode::AgentTimeout,
        }
    }

    fn add_members(&self, problem: &mut Problem) {
        match self {
            Self::Rpc(error) => {
                problem.retryable |= problem.code == ProblemCode::AgentError && error.is_transient();
                problem.acp = Some(acp_error(error));
            }
            Self::AuthRequired { auth_methods, error, .. } => {
                problem.auth_methods.clone_from(auth_methods);
                problem.acp = Some(acp_error(error));
            }
            Self::Exited(AgentExit { exit_code, signal, stderr_tail, .. }) => {
                problem.exit_code = Some(*exit_code);
                problem.signal = Some(signal.clone());
                problem.stderr_tail = Some(stderr_tail.clone());
            }
            Self::Draining => problem.retry_after_seconds = Some(5),
            _ => {}
        }
    }
}

fn acp_error(error: &crate::jsonrpc::RpcError) -> RpcError {
    RpcError { code: error.code, message: error.message.clone(), data: error.data.clone() }
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

/// Every error of a read, and every internal error.
impl<E> From<E> for Refusal
where
    SessionError: From<E>,
{
    fn from(error: E) -> Self {
        Self::Session(error.into())
    }
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
