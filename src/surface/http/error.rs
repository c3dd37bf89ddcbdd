//! The only place that maps errors to HTTP statuses.
//!
//! Handlers and extractors fail with an [`ApiError`]: a problem and, for internal errors, its cause. The
//! response carries the error as an extension. The outermost layer writes the problem document with the
//! request id, so all problems of the gateway have the same form.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::authorized::AccessError;
use super::body::{BodyError, ascii};
use super::json::JsonError;
use crate::auth::{ActAsError, AdmissionError, INVALID_TOKEN};
use crate::server::{AdmitError, BodyMemoryFull};
use base::telemetry::ErrorChain;
use base::types::Scope;
use events::api::{Problem, ProblemCode};
use sessions::session::ToProblem;

/// draft-ietf-httpapi-ratelimit-headers: the quota policy and the remaining quota.
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

const BODY_MEMORY_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct ApiError {
    problem: Box<Problem>,
    /// The internal cause. Only the log shows it.
    cause: Option<BoxError>,
    /// The error of the admission, which selects the challenge of a 401.
    admission: Option<AdmissionError>,
}

pub type Result<T, E = ApiError> = std::result::Result<T, E>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a response whose problem document is not written yet.
#[derive(Clone)]
pub(crate) struct FailedResponse(pub(crate) Arc<ApiError>);

impl ApiError {
    pub(crate) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    pub(crate) fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Problem::invalid(pointer, detail).into()
    }

    pub(crate) fn not_found() -> Self {
        let detail = "the resource does not exist, or this key has no access to it";
        Self::new(ProblemCode::NotFound, detail)
    }

    /// An internal error. The client receives only the request id.
    pub(crate) fn internal(cause: impl Into<BoxError>) -> Self {
        Self {
            cause: Some(cause.into()),
            ..Self::from(Problem::internal())
        }
    }

    /// The error of a request for a WebSocket that is not one.
    pub(crate) fn no_websocket(rejection: &WebSocketUpgradeRejection) -> Self {
        let text = rejection.body_text();
        let detail = format!("this path requires a WebSocket upgrade: {text}");
        Self::new(ProblemCode::Malformed, detail)
    }

    /// Whether the admission rejected the request, so that no key was accepted.
    pub(crate) fn is_of_admission(&self) -> bool {
        self.admission.is_some()
    }

    pub(crate) fn rate_limited(detail: impl Into<String>, wait: Duration) -> Self {
        Problem::transient(ProblemCode::RateLimited, detail, wait).into()
    }

    pub(crate) fn draining() -> Self {
        Problem::draining().into()
    }

    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The value of `WWW-Authenticate` (RFC 6750, section 3).
    fn challenge(&self) -> Option<HeaderValue> {
        if let Some(scope) = self.problem.required_scope {
            return Some(insufficient_scope(scope));
        }
        let admission = self.admission.as_ref();
        let challenge = admission.map_or(INVALID_TOKEN, AdmissionError::challenge);
        let is_unauthorized = self.problem.status == StatusCode::UNAUTHORIZED;
        is_unauthorized.then(|| HeaderValue::from_static(challenge))
    }

    pub(crate) fn log(&self) {
        if let Some(cause) = &self.cause {
            tracing::error!(error = %ErrorChain(cause.as_ref()), "a request failed with an internal error");
        }
    }
}

/// The challenge of a key without a scope (RFC 6750, section 3.1).
fn insufficient_scope(scope: Scope) -> HeaderValue {
    let name = scope.name();
    ascii(format!(
        "Bearer realm=\"acp-gateway\", error=\"insufficient_scope\", scope=\"{name}\""
    ))
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        let headers = response.headers_mut();
        if let Some(challenge) = self.challenge() {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = self.problem.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(limit) = &self.problem.limit {
            headers.insert(RATELIMIT_POLICY, ascii(limit.policy()));
            headers.insert(RATELIMIT, ascii(limit.remaining()));
        }
        // For the access log.
        response.extensions_mut().insert(self.problem.code);
        let failed = FailedResponse(Arc::new(self));
        response.extensions_mut().insert(failed);
        response
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature is that of the panic layer"
)]
pub(crate) fn panic_response(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("(the panic message is not a string)");
    ApiError::internal(format!("a handler panicked: {text}")).into_response()
}

pub(crate) async fn method_not_allowed() -> ApiError {
    let detail = "this path supports only the methods in the Allow header";
    ApiError::new(ProblemCode::MethodNotAllowed, detail)
}

impl From<AdmissionError> for ApiError {
    fn from(error: AdmissionError) -> Self {
        use AdmissionError as R;
        let detail = error.to_string();
        let admission = Some(error.clone());
        let error = match error {
            R::InvalidHost => Self::new(ProblemCode::Malformed, detail),
            R::MisdirectedRequest => Self::new(ProblemCode::MisdirectedRequest, detail),
            R::OriginForbidden => Self::new(ProblemCode::Forbidden, detail),
            R::MissingKey | R::InvalidKey | R::InvalidTicket => {
                Self::new(ProblemCode::Unauthorized, detail)
            }
            R::TooManyInvalidKeys { retry_after } => Self::rate_limited(detail, retry_after),
        };
        Self { admission, ..error }
    }
}

impl From<AdmitError> for ApiError {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::Rejected(error) => error.into(),
            AdmitError::RateLimited(exceeded) => exceeded.into(),
            AdmitError::ActAs(error) => error.into(),
        }
    }
}

impl From<ActAsError> for ApiError {
    fn from(error: ActAsError) -> Self {
        let code = match &error {
            ActAsError::Store(_) => ProblemCode::StorageFull,
            _ => ProblemCode::Forbidden,
        };
        Self::new(code, error.to_string())
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::NoCredential => Self::internal(error),
            AccessError::MissingScope(scope) => {
                Problem::missing_scope(scope, error.to_string()).into()
            }
            AccessError::ActAs(error) => error.into(),
        }
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        let detail = error.to_string();
        let code = match error {
            BodyError::Encoded(_) => ProblemCode::UnsupportedMediaType,
            BodyError::TooLarge(_) => ProblemCode::TooLarge,
            BodyError::Memory(BodyMemoryFull::Principal) => {
                return Self::rate_limited(detail, BODY_MEMORY_WAIT);
            }
            BodyError::Memory(BodyMemoryFull::Total) => {
                let code = ProblemCode::BodyMemoryFull;
                return Problem::transient(code, detail, BODY_MEMORY_WAIT).into();
            }
            BodyError::Incomplete | BodyError::TimedOut => ProblemCode::Malformed,
        };
        Self::new(code, detail)
    }
}

impl From<JsonError> for ApiError {
    fn from(error: JsonError) -> Self {
        let text = error.to_string();
        match error {
            JsonError::Malformed(_) => Self::new(ProblemCode::Malformed, text),
            JsonError::Invalid { pointer, detail } => Problem {
                detail: text,
                ..Problem::invalid(pointer, detail)
            }
            .into(),
        }
    }
}

impl<E: ToProblem> From<E> for ApiError {
    fn from(error: E) -> Self {
        Self {
            problem: Box::new(error.problem()),
            cause: None,
            admission: None,
        }
    }
}
