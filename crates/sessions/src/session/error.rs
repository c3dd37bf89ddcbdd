//! The errors of session operations, and the problems that clients receive.
//!
//! Each operation has its own enum, so its signature shows the possible errors. Do not add an enum for all operations.
//! A read fails only with `SessionError`, a check only with `InputError`. Only problem codes define HTTP statuses, because
//! the event `prompt.failed` contains the same problem. The conversion to `SessionError::Internal` logs the cause. Clients
//! receive only the request id.

use std::time::Duration;

use agents::agent::AgentFailure;
use agents::agent::client_input_policy::ClientInputError;
use agents::pool::{AcquireError, ShortLeaseError};
use base::types::{Access, LimitExceeded, PrincipalLimit, PromptId, RequestId, Scope};
use events::api::{FieldError, Problem, ProblemCode, Resolution, RpcError};
use log::eventlog::Closed;
use log::store::ReadError;
use wire::jsonrpc;
use workspace::FileError;

/// Implements [`ToProblem`] for an enum whose variants each contain another error.
macro_rules! delegate_to_parts {
    ($name:ident { $($variant:ident),* }) => {
        impl ToProblem for $name {
            fn problem(&self) -> Problem {
                match self { $(Self::$variant(part) => part.problem(),)* }
            }
        }
    };
}

/// The suggested delay before a retry, for example after which another session may have released its process.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// An error that clients receive as a problem, in a response or in an event.
pub trait ToProblem: std::error::Error {
    fn problem(&self) -> Problem;
}

/// The problem of a temporary error. `wait`: the suggested delay before a retry.
fn transient(error: &impl ToProblem, code: ProblemCode, wait: Duration) -> Problem {
    Problem::transient(code, error.to_string(), wait)
}

impl ToProblem for Problem {
    fn problem(&self) -> Problem {
        self.clone()
    }
}

impl ToProblem for ReadError {
    fn problem(&self) -> Problem {
        SessionError::internal(self).problem()
    }
}

impl ToProblem for FileError {
    fn problem(&self) -> Problem {
        let detail = self.to_string();
        let code = match self {
            Self::Malformed
            | Self::Relative
            | Self::NotAFile
            | Self::NotADirectory
            | Self::NotEmpty
            | Self::NotText => return Problem::invalid("path", detail),
            Self::Io(_) => return SessionError::internal(self).problem(),
            Self::OutsideRoots | Self::PermissionDenied => ProblemCode::Forbidden,
            Self::Missing | Self::Unchanged | Self::NotStored => ProblemCode::NotFound,
            Self::TooLarge(_) => ProblemCode::TooLarge,
            Self::Changed | Self::Exists => ProblemCode::PreconditionFailed,
            Self::DiskFull => ProblemCode::StorageFull,
        };
        Problem::new(code, detail)
    }
}

/// The error of an operation that finds a session, reads it, or waits for a commit.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionError {
    #[error("there is no such session")]
    NoSuchSession,
    /// A grant gives the user a lower access.
    #[error("this needs the access `{}` to the session, and you have `{}`: ask one of its owners", .needed.name(), .access.name())]
    NoAccess { access: Access, needed: Access },
    /// The actor accepted no command in time.
    #[error("the session is too busy")]
    Busy { retry_after: Duration },
    #[error("the storage is nearly full; only reads are accepted")]
    StorageFull,
    /// The cause is in the gateway's log.
    #[error("internal error")]
    Internal,
}

impl SessionError {
    /// Logs the cause with the id of the request, and hides it from the client.
    pub(super) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error, "a session operation failed");
        Self::Internal
    }
}

impl ToProblem for SessionError {
    fn problem(&self) -> Problem {
        let code = match self {
            Self::NoSuchSession => ProblemCode::NotFound,
            Self::NoAccess { .. } => ProblemCode::Forbidden,
            Self::Busy { retry_after } => {
                return transient(self, ProblemCode::PoolFull, *retry_after);
            }
            Self::StorageFull => ProblemCode::StorageFull,
            Self::Internal => ProblemCode::Internal,
        };
        Problem::new(code, self.to_string())
    }
}

/// Errors of the gateway itself. The conversion logs the cause.
macro_rules! internal_errors {
    ($($cause:ty),* $(,)?) => {$(
        impl From<$cause> for SessionError {
            fn from(error: $cause) -> Self {
                Self::internal(&error)
            }
        }
    )*};
}
internal_errors!(
    ReadError,
    Closed,
    serde_json::Error,
    std::io::Error,
    tokio::task::JoinError
);

#[derive(Debug, Clone, thiserror::Error)]
pub enum InputError {
    /// The list is never empty.
    #[error("{}", .0[0].detail)]
    Invalid(Vec<FieldError>),
    #[error("{}", .0.detail)]
    ContentUnsupported(FieldError),
    #[error("{0}")]
    Forbidden(String),
    #[error("{1}")]
    MissingScope(Scope, String),
    #[error("{0}")]
    TooLarge(String),
}

impl InputError {
    /// The error for one invalid field. `pointer` is its JSON pointer in the body, or a query parameter.
    pub(super) fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError {
            pointer: pointer.into(),
            detail: detail.into(),
        }])
    }

    /// Converts a violation of the input policy. `at` is the JSON pointer of the checked value in the body.
    pub fn from_policy(violation: &ClientInputError, at: &str) -> Self {
        let detail = violation.to_string();
        match violation.pointer() {
            Some(pointer) => Self::invalid(format!("{at}{pointer}"), detail),
            None => Self::Forbidden(detail),
        }
    }
}

impl ToProblem for InputError {
    fn problem(&self) -> Problem {
        let (code, errors) = match self {
            Self::Invalid(errors) => (ProblemCode::Invalid, errors.clone()),
            Self::ContentUnsupported(error) => {
                (ProblemCode::ContentUnsupported, vec![error.clone()])
            }
            Self::Forbidden(_) => (ProblemCode::Forbidden, Vec::new()),
            Self::MissingScope(scope, detail) => return Problem::missing_scope(*scope, detail),
            Self::TooLarge(_) => (ProblemCode::TooLarge, Vec::new()),
        };
        Problem {
            errors,
            ..Problem::new(code, self.to_string())
        }
    }
}

/// A part of the session that a request names does not exist, for example a turn.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("there is no such {0} in this session")]
pub struct NotFound(pub(super) &'static str);

impl ToProblem for NotFound {
    fn problem(&self) -> Problem {
        Problem::new(ProblemCode::NotFound, self.to_string())
    }
}

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
    pub(super) const DRAINING: Self = Self::Acquire(AcquireError::Draining);

    pub(super) fn unsupported(method: impl Into<String>) -> Self {
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
}

impl ToProblem for AcquireError {
    fn problem(&self) -> Problem {
        match self {
            Self::NoSuchAgent => Problem::invalid("/agent", self.to_string()),
            Self::Limit(exceeded) => exceeded.problem(),
            Self::QueueFull { .. } | Self::Busy | Self::SignInInProgress => {
                transient(self, ProblemCode::PoolFull, agents::pool::RETRY_AFTER)
            }
            Self::BreakerOpen { retry_after } => {
                transient(self, ProblemCode::PoolFull, *retry_after)
            }
            Self::Draining => transient(self, ProblemCode::Draining, RETRY_AFTER),
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
        Problem {
            retry_after_seconds: Some(self.retry_after_seconds()),
            limit: Some(self.clone()),
            ..Problem::new(code, self.to_string())
        }
    }
}

delegate_to_parts!(ShortLeaseError { Acquire, Agent });

impl ToProblem for AgentFailure {
    fn problem(&self) -> Problem {
        let problem = Problem::new(self.code(), self.to_string());
        match self {
            Self::Rpc(error) => {
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
                ..problem
            },
            Self::Exited(exit) if !exit.is_lost => Problem {
                retryable: problem.retryable && !exit.lacks_program(),
                exit_code: Some(exit.exit_code),
                signal: Some(exit.signal.clone()),
                stderr_tail: Some(exit.stderr_tail.clone()),
                ..problem
            },
            Self::Draining => transient(self, self.code(), RETRY_AFTER),
            _ => problem,
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

/// Defines the errors of operations. Each one is made of other errors, and every operation can fail with a `SessionError`.
macro_rules! operation_errors {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident($part:ty)),* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, thiserror::Error)]
        pub enum $name {
            $(#[error(transparent)] $variant(#[from] $part),)*
            #[error(transparent)] Session(SessionError),
        }

        impl<E> From<E> for $name
        where
            SessionError: From<E>,
        {
            fn from(error: E) -> Self {
                Self::Session(error.into())
            }
        }

        delegate_to_parts!($name { $($variant,)* Session });
    )*};
}

operation_errors! {
    ListError { Input(InputError) }
    AgentSessionsError { Input(InputError), Lease(ShortLeaseError) }
    WorkspaceError { Input(InputError), NotFound(NotFound) }
    ClaimError { Idempotency(IdempotencyError) }
    CreateError {
        Claim(ClaimError),
        Input(InputError),
        AgentSessions(AgentSessionsError),
        Fork(CallError),
        Process(ProcessError)
    }
    PromptError {
        Claim(ClaimError),
        Limit(LimitExceeded),
        Workspace(WorkspaceError),
        Input(InputError),
        Admit(AdmitError),
        Process(ProcessError),
        NotFound(NotFound)
    }
    QueueError {
        Workspace(WorkspaceError),
        Input(InputError),
        NotQueued(NotQueued),
        Process(ProcessError),
        NotFound(NotFound)
    }
    PatchError { Input(InputError), PreconditionFailed(PreconditionFailed) }
    DeleteError { PreconditionFailed(PreconditionFailed) }
    AnswerError { Input(InputError), NotFound(NotFound), Resolved(RequestResolved) }
    CallError { Input(InputError), TurnRunning(TurnRunning), NotFound(NotFound), Process(ProcessError) }
    AttachError { Process(ProcessError), TurnRunning(TurnRunning) }
    PartError { NotFound(NotFound) }
    GrantError { Input(InputError), NotFound(NotFound), Owner(OwnerGrant) }
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the user owns the session: the access of its owner cannot be changed or removed")]
pub struct OwnerGrant;

impl ToProblem for OwnerGrant {
    fn problem(&self) -> Problem {
        Problem::new(ProblemCode::LastOwner, self.to_string())
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum AdmitError {
    #[error(transparent)]
    TurnRunning(#[from] TurnRunning),
    #[error("too many queued prompts (limit {0}, `limits.per_session.max_queued_prompts`)")]
    QueueFull(usize),
    #[error("the agent crashed too often in turns of this session; prompts are refused for {} s", .0.as_secs().max(1))]
    CrashLoop(Duration),
}

impl ToProblem for AdmitError {
    fn problem(&self) -> Problem {
        match self {
            Self::TurnRunning(error) => error.problem(),
            Self::QueueFull(_) => transient(self, ProblemCode::QueueFull, RETRY_AFTER),
            Self::CrashLoop(wait) => transient(self, ProblemCode::CrashLoop, *wait),
        }
    }
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("turn {0} is running; wait, cancel it, or send queue: true")]
pub struct TurnRunning(pub(super) PromptId);

impl ToProblem for TurnRunning {
    fn problem(&self) -> Problem {
        Problem {
            prompt_id: Some(self.0),
            ..Problem::new(ProblemCode::TurnRunning, self.to_string())
        }
    }
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the prompt {0} is not in the queue: it has started or ended")]
pub struct NotQueued(pub(super) PromptId);

impl ToProblem for NotQueued {
    fn problem(&self) -> Problem {
        Problem {
            prompt_id: Some(self.0),
            ..Problem::new(ProblemCode::PromptNotQueued, self.to_string())
        }
    }
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
pub enum IdempotencyError {
    #[error("the Idempotency-Key was used with another body")]
    Mismatch,
    #[error("the first request with this Idempotency-Key is still in flight")]
    InFlight,
}

impl ToProblem for IdempotencyError {
    fn problem(&self) -> Problem {
        match self {
            Self::Mismatch => Problem::new(ProblemCode::IdempotencyMismatch, self.to_string()),
            Self::InFlight => transient(
                self,
                ProblemCode::IdempotencyInFlight,
                Duration::from_secs(1),
            ),
        }
    }
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("If-Match does not name the revision of the session, which is \"r{revision}\"")]
pub struct PreconditionFailed {
    pub(super) revision: u64,
}

impl ToProblem for PreconditionFailed {
    fn problem(&self) -> Problem {
        Problem {
            revision: Some(self.revision),
            ..Problem::new(ProblemCode::PreconditionFailed, self.to_string())
        }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("request {id} is already resolved")]
pub struct RequestResolved {
    pub(super) id: RequestId,
    pub(super) resolution: Resolution,
    pub(super) by: Option<String>,
}

impl ToProblem for RequestResolved {
    fn problem(&self) -> Problem {
        Problem {
            request_id: Some(self.id),
            resolution: Some(self.resolution),
            by: self.by.clone(),
            ..Problem::new(ProblemCode::RequestResolved, self.to_string())
        }
    }
}
