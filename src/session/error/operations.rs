//! The error of each operation, and the errors that only few operations have.

use std::time::Duration;

use super::process::ProcessError;
use super::shared::{InputError, NotFound, SessionError};
use super::{RETRY_AFTER, ToProblem, transient};
use crate::api::{Problem, ProblemCode, Resolution};
use crate::pool::ShortLeaseError;
use crate::types::{LimitExceeded, PromptId, RequestId};

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
    /// The error of a list of sessions.
    ListError { Input(InputError) }
    /// The error of the agent's own list of sessions.
    AgentSessionsError { Input(InputError), Lease(ShortLeaseError) }
    /// The error of access to a session's folders.
    WorkspaceError { Input(InputError), NotFound(NotFound) }
    /// The error of the claim of an idempotency key.
    ClaimError { Idempotency(IdempotencyError) }
    /// The error of the creation, the adoption or the fork of a session.
    CreateError {
        Claim(ClaimError),
        Input(InputError),
        AgentSessions(AgentSessionsError),
        Fork(CallError),
        Process(ProcessError)
    }
    /// The error of a prompt, also of one that waited in the queue.
    PromptError {
        Claim(ClaimError),
        Limit(LimitExceeded),
        Workspace(WorkspaceError),
        Input(InputError),
        Admit(AdmitError),
        Process(ProcessError),
        NotFound(NotFound)
    }
    /// The error of a change of a queued prompt.
    QueueError {
        Workspace(WorkspaceError),
        Input(InputError),
        NotQueued(NotQueued),
        Process(ProcessError),
        NotFound(NotFound)
    }
    /// The error of a change of title or metadata.
    PatchError { Input(InputError), PreconditionFailed(PreconditionFailed) }
    /// The error of a delete.
    DeleteError { PreconditionFailed(PreconditionFailed) }
    /// The error of an answer to a request of the agent.
    AnswerError { Input(InputError), NotFound(NotFound), Resolved(RequestResolved) }
    /// The error of a client's call to the agent outside a turn.
    CallError { Input(InputError), TurnRunning(TurnRunning), NotFound(NotFound), Process(ProcessError) }
    /// The error of an attach.
    AttachError { Process(ProcessError), TurnRunning(TurnRunning) }
    /// The error of an operation on one turn or one terminal.
    PartError { NotFound(NotFound) }
}

/// Why a prompt neither runs nor waits.
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
pub struct TurnRunning(pub(in crate::session) PromptId);

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
pub struct NotQueued(pub(in crate::session) PromptId);

impl ToProblem for NotQueued {
    fn problem(&self) -> Problem {
        Problem {
            prompt_id: Some(self.0),
            ..Problem::new(ProblemCode::PromptNotQueued, self.to_string())
        }
    }
}

/// The error of a request whose `Idempotency-Key` was used before.
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
    pub(in crate::session) revision: u64,
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
    pub(in crate::session) id: RequestId,
    pub(in crate::session) resolution: Resolution,
    pub(in crate::session) by: Option<String>,
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
