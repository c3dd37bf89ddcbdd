//! The error of each operation.

use super::shared::{FolderError, IdempotencyError, InputError, SessionError, ToProblem};
use crate::api::Problem;
use crate::session::refusal::Refusal;
use crate::types::LimitExceeded;

/// Defines an error for each operation, made of other errors.
macro_rules! operation_errors {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident($part:ty)),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, thiserror::Error)]
        pub enum $name {
            $(#[error(transparent)] $variant(#[from] $part),)*
        }

        impl ToProblem for $name {
            fn problem(&self) -> Problem {
                match self { $(Self::$variant(part) => part.problem(),)* }
            }

            fn limit(&self) -> Option<&LimitExceeded> {
                match self { $(Self::$variant(part) => part.limit(),)* }
            }
        }
    )*};
}

operation_errors! {
    /// The error of a list of sessions.
    ListError { Input(InputError), Session(SessionError) }
    /// The error of the agent's own list of sessions.
    AgentSessionsError { Input(InputError), Agent(Refusal), Session(SessionError) }
    /// The error of opening a session's folders.
    WorkspaceError { Folder(FolderError), Session(SessionError) }
    /// The error of a claim of an `Idempotency-Key`.
    ClaimError { Idempotency(IdempotencyError), Session(SessionError) }
    /// The error of the creation, the adoption or the fork of a session.
    CreateError {
        Claim(ClaimError),
        Input(InputError),
        List(AgentSessionsError),
        Command(CommandError),
        Actor(Refusal),
        Session(SessionError),
    }
    /// The error of a prompt.
    PromptError {
        Claim(ClaimError),
        Input(InputError),
        Workspace(WorkspaceError),
        Actor(Refusal),
        Session(SessionError),
    }
    /// The error of a change of title or metadata.
    PatchError { Input(InputError), Actor(Refusal), Session(SessionError) }
    /// The error of an answer to a request of the agent.
    AnswerError { Input(InputError), Actor(Refusal), Session(SessionError) }
    /// The error of an attach, a cancel or a call to the agent.
    CommandError { Actor(Refusal), Session(SessionError) }
}
