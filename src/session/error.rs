//! The errors of reads and of checks. `refusal` has the error of all other operations.

use std::time::Duration;

use crate::acp::client_input_policy::ClientInputError;
use crate::api::{FieldError, Problem, ProblemCode};
use crate::eventlog::Closed;
use crate::store::ReadError;
use crate::types::LimitExceeded;

/// An error that clients receive as a problem, in a response or in an event.
pub trait ToProblem: std::error::Error {
    fn code(&self) -> ProblemCode;

    /// Sets the members of the problem that belong to this error.
    fn add_members(&self, _problem: &mut Problem) {}

    fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.code(), self.to_string());
        self.add_members(&mut problem);
        problem
    }

    /// The limit of the principal that the request exceeded.
    fn limit(&self) -> Option<&LimitExceeded> {
        None
    }
}

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
    fn code(&self) -> ProblemCode {
        match self {
            Self::NoSuchSession => ProblemCode::NotFound,
            Self::Busy { .. } => ProblemCode::PoolFull,
            Self::StorageFull => ProblemCode::StorageFull,
            Self::Internal => ProblemCode::Internal,
        }
    }

    fn add_members(&self, problem: &mut Problem) {
        if let Self::Busy { retry_after } = self {
            problem.retry_after_seconds = Some(retry_after.as_secs());
        }
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
internal_errors!(ReadError, Closed, serde_json::Error, std::io::Error, tokio::task::JoinError);

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
    #[error("{0}")]
    TooLarge(String),
}

impl InputError {
    /// The error for one invalid field. `pointer` is its JSON pointer in the body, or a query parameter.
    pub(in crate::session) fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError { pointer: pointer.into(), detail: detail.into() }])
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
    fn code(&self) -> ProblemCode {
        match self {
            Self::Invalid(_) => ProblemCode::Invalid,
            Self::ContentUnsupported(_) => ProblemCode::ContentUnsupported,
            Self::Forbidden(_) => ProblemCode::Forbidden,
            Self::TooLarge(_) => ProblemCode::TooLarge,
        }
    }

    fn add_members(&self, problem: &mut Problem) {
        match self {
            Self::Invalid(errors) => problem.errors.clone_from(errors),
            Self::ContentUnsupported(error) => problem.errors.push(error.clone()),
            Self::Forbidden(_) | Self::TooLarge(_) => {}
        }
    }
}
