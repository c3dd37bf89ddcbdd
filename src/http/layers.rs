//! The middleware around every route, outermost first: request ids and response headers, problem documents,
//! panics, and admission.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use tracing::Instrument;

use super::backlog::ConnectionBacklog;
use super::cors;
use super::error::{ApiError, FailedResponse};
use super::negotiate::{Representation, negotiate};
use super::state::Gateway;
use super::stream;
use crate::api::Problem;
use crate::auth::Admission;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The address of the peer of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Assigns the request id, sets the response headers, and writes the problem document of a failed request.
pub(super) async fn finish_response(
    State(gateway): State<Gateway>,
    request: Request,
    next: Next,
) -> Response {
    let id = request_id(request.headers()).unwrap_or_else(|| new_request_id(&gateway));
    // Every log line of the request has the same id as the problem document of the client.
    let span = tracing::error_span!("request", id = id.to_str().unwrap_or_default());
    run_and_finish(&gateway, id, request, next).instrument(span).await
}

async fn run_and_finish(gateway: &Gateway, id: HeaderValue, request: Request, next: Next) -> Response {
    let streams = wants_stream(&request);
    let http1 = request.version() < Version::HTTP_2;
    // Error responses need the CORS headers too. Without them, a page sees a network error instead of the
    // problem.
    let origin = gateway.policy.allowed_cross_origin(request.headers()).map(str::to_owned);
    let mut response = next.run(request).await;
    if let Some(FailedResponse(error)) = response.extensions_mut().remove::<FailedResponse>() {
        if streams && is_transient(response.status()) {
            response = stream_problem_response(gateway, &error, &id);
        } else {
            write_problem(&mut response, &error, &id);
        }
    }
    let too_large = response.status() == StatusCode::PAYLOAD_TOO_LARGE;
    let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    // `Connection: close` announces that this connection serves no further request. The gateway does not read
    // the rest of a body that is too large, and a draining gateway sends only one more response. A stream
    // never has this header, because some clients then accept a truncated stream as complete.
    let closes = too_large || (gateway.shutdown.is_draining() && !stream::is_stream(headers));
    if http1 && closes && !upgraded {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(origin) = origin {
        cors::allow(headers, &origin);
    }
    headers.insert(REQUEST_ID, id);
    set_default_headers(headers);
    response
}

/// Whether the request is for a stream: by its path, or by its `Accept` header.
fn wants_stream(request: &Request) -> bool {
    const FORMS: [Representation; 3] =
        [Representation::Json, Representation::EventStream, Representation::Ndjson];
    let path = request.uri().path();
    let asks = || negotiate(request.headers(), &FORMS).is_ok_and(|form| form == Representation::EventStream);
    request.method() == Method::GET
        && (path.ends_with("/events/stream") || path.ends_with("/events") && asks())
}

/// Whether the condition behind a status is temporary. An EventSource does not reconnect after any status but
/// 200.
fn is_transient(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn stream_problem_response(gateway: &Gateway, error: &ApiError, id: &HeaderValue) -> Response {
    stream::problem_response(&log_and_describe(error, id), &gateway.ids)
}

/// Adds the request id to the problem. Internal errors are logged under the same id.
fn log_and_describe(error: &ApiError, id: &HeaderValue) -> Problem {
    error.log();
    Problem { instance: id.to_str().ok().map(str::to_owned), ..error.problem().clone() }
}

/// The request id of the client, if it has 1 to 128 characters of `[A-Za-z0-9._-]`.
fn request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(REQUEST_ID)?;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    ((1..=128).contains(&id.len()) && id.as_bytes().iter().all(plain)).then(|| id.clone())
}

fn new_request_id(gateway: &Gateway) -> HeaderValue {
    HeaderValue::try_from(gateway.ids.uuid().to_string()).expect("a UUID is plain ASCII")
}

fn write_problem(response: &mut Response, error: &ApiError, id: &HeaderValue) {
    let body =
        serde_json::to_vec(&log_and_describe(error, id)).expect("a problem has string keys and serializes");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    *response.body_mut() = Body::from(body);
}

/// The headers of a response unless its route sets them: no caching, framing, MIME sniffing or scripts.
fn set_default_headers(headers: &mut HeaderMap) {
    const DEFAULTS: [(HeaderName, &str); 7] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in DEFAULTS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Converts a panic of a handler to a 500 problem. The log has the panic message.
#[expect(clippy::needless_pass_by_value, reason = "the signature is that of the panic layer")]
pub(super) fn panic_response(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("(the panic message is not a string)");
    ApiError::internal(format!("a handler panicked: {text}")).into_response()
}

/// Authenticates the request and counts it against the rate limit of its principal.
pub(super) async fn admit(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let admission = match admission(&gateway, &parts) {
        Ok(admission) => Arc::new(admission),
        Err(error) => return error.into_response(),
    };
    match admit_principal(&gateway, &admission) {
        Err(error) => error.into_response(),
        Ok(()) if admission.preflight => cors::preflight(),
        Ok(()) => {
            if admission.principal().is_some()
                && let Some(backlog) = parts.extensions.get::<ConnectionBacklog>()
            {
                backlog.authenticated();
            }
            parts.extensions.insert(admission);
            next.run(Request::from_parts(parts, body)).await
        }
    }
}

fn admission(gateway: &Gateway, parts: &http::request::Parts) -> Result<Admission, ApiError> {
    let Some(Peer(peer)) = parts.extensions.get::<Peer>() else {
        return Err(ApiError::internal("the request has no peer address"));
    };
    Ok(gateway.policy.admit(parts, *peer)?)
}

fn admit_principal(gateway: &Gateway, admission: &Admission) -> Result<(), ApiError> {
    match admission.principal() {
        Some(principal) => gateway.rates().check_request(principal),
        None => Ok(()),
    }
}
