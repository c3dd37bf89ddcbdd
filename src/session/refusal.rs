//! The errors of session operations, and the problems that clients receive.

use std::time::Duration;

use crate::acp::client_input_policy::ClientInputError;
use crate::acp::error_code;
use crate::agent::{AgentExit, AgentFailure, without_secrets};
use crate::api::{FieldError, Problem, ProblemCode, Resolution, RpcError};
use crate::pool::{AcquireError, Lease, ShortLeaseError};
use crate::types::{LimitExceeded, PrincipalLimit, PromptId, RequestId};

/// The error of a session operation. Each operation documents the errors that are specific to it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    #[error("there is no such session")]
    NoSuchSession,
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
    #[error("{detail}")]
    Invalid { pointer: String, detail: String },
    /// Several fields of a body are invalid. The list is never empty.
    #[error("{}", .0[0].detail)]
    InvalidFields(Vec<FieldError>),
    #[error("{detail}")]
    ContentUnsupported { pointer: String, detail: String },
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    TooLarge(String),
    #[error("the Idempotency-Key was used with another body")]
    IdempotencyMismatch,
    #[error("the first request with this Idempotency-Key is still in flight")]
    IdempotencyInFlight,
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
    #[error("the storage is nearly full; only reads are accepted")]
    StorageFull,
    #[error("{0}")]
    Agent(#[from] AgentFailure),
    /// The agent has the session, or may have it.
    #[error("the agent did not restore the session: {0}; the conversation is kept, so try again")]
    NotRestored(crate::jsonrpc::RpcError),
    /// The resource that a client named does not exist.
    #[error("the agent did not find the resource: {0}")]
    NoSuchResource(crate::jsonrpc::RpcError),
    /// The cause is in the gateway's log.
    #[error("internal error")]
    Internal,
}

impl Refusal {
    /// Logs the cause with the id of the request, and hides it from the client.
    pub(super) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error, "a session operation failed");
        Self::Internal
    }

    /// The error for one invalid field. `pointer` is its JSON pointer in the body.
    pub(super) fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Invalid { pointer: pointer.into(), detail: detail.into() }
    }

    /// Converts a violation of the input policy. `at` is the JSON pointer of the checked value in the body.
    pub fn from_policy(gated: &ClientInputError, at: &str) -> Self {
        let detail = gated.to_string();
        match gated.pointer() {
            Some(pointer) => Self::Invalid { pointer: format!("{at}{pointer}"), detail },
            None => Self::Forbidden(detail),
        }
    }

    pub fn code(&self) -> ProblemCode {
        match self {
            Self::NoSuchSession | Self::NotFound(_) | Self::NoSuchResource(_) => ProblemCode::NotFound,
            Self::Closed => ProblemCode::SessionClosed,
            Self::TurnRunning(_) => ProblemCode::TurnRunning,
            Self::RequestResolved { .. } => ProblemCode::RequestResolved,
            Self::Invalid { .. } | Self::InvalidFields(_) => ProblemCode::Invalid,
            Self::ContentUnsupported { .. } => ProblemCode::ContentUnsupported,
            Self::Forbidden(_) => ProblemCode::Forbidden,
            Self::TooLarge(_) => ProblemCode::TooLarge,
            Self::IdempotencyMismatch => ProblemCode::IdempotencyMismatch,
            Self::IdempotencyInFlight => ProblemCode::IdempotencyInFlight,
            Self::PreconditionFailed => ProblemCode::PreconditionFailed,
            Self::PoolFull(..) => ProblemCode::PoolFull,
            Self::QueueFull(_) | Self::Limit(LimitExceeded { limit: PrincipalLimit::QueuedPrompts, .. }) => {
                ProblemCode::QueueFull
            }
            Self::Limit(_) | Self::Quota(_) => ProblemCode::RateLimited,
            Self::CrashLoop(_) => ProblemCode::CrashLoop,
            Self::Draining => ProblemCode::Draining,
            Self::StorageFull => ProblemCode::StorageFull,
            Self::Agent(failure) => agent_code(failure),
            Self::NotRestored(_) => ProblemCode::AgentError,
            Self::Internal => ProblemCode::Internal,
        }
    }

    /// The problem for a client, in a response or in an event.
    pub fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.code(), self.to_string());
        match self {
            Self::TurnRunning(prompt) => problem.prompt_id = Some(*prompt),
            Self::RequestResolved { id, resolution, by } => {
                problem.request_id = Some(*id);
                problem.resolution = Some(*resolution);
                problem.by.clone_from(by);
            }
            Self::Invalid { pointer, detail } | Self::ContentUnsupported { pointer, detail } => {
                problem.errors = vec![FieldError { pointer: pointer.clone(), detail: detail.clone() }];
            }
            Self::InvalidFields(errors) => problem.errors.clone_from(errors),
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
            _ => {}
        }
        problem
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
        lease.prompt_refused();
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
            AcquireError::NoSuchAgent => Self::Invalid {
                pointer: "/agent".to_owned(),
                detail: "no agent of that name is configured".to_owned(),
            },
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
