//! The errors that many operations have.

use std::time::Duration;

use super::{ToProblem, transient};
use crate::acp::client_input_policy::ClientInputError;
use crate::api::{FieldError, Problem, ProblemCode};
use crate::eventlog::Closed;
use crate::store::ReadError;
use crate::types::Scope;

/// The error of an operation that finds a session, reads it, or waits for a commit.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionError {
    #[error("there is no such session")]
    NoSuchSession,
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
    pub(in crate::session) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error, "a session operation failed");
        Self::Internal
    }
}

impl ToProblem for SessionError {
    fn problem(&self) -> Problem {
        let code = match self {
            Self::NoSuchSession => ProblemCode::NotFound,
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

/// The error of a request with unacceptable content.
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
    pub(in crate::session) fn invalid(
        pointer: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
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
pub struct NotFound(pub(in crate::session) &'static str);

impl ToProblem for NotFound {
    fn problem(&self) -> Problem {
        Problem::new(ProblemCode::NotFound, self.to_string())
    }
}
