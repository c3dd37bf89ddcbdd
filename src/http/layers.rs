//! What happens to every request around its route, outermost first: the request's id and the headers of every
//! answer, problems written out, panics, admission.

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

/// The address of the other end of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Gives the request its id, and the answer its headers and, if it failed, its body.
pub(super) async fn finish_response(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    let id = request_id(request.headers()).unwrap_or_else(|| new_request_id(&gateway));
    // Whatever is logged for the request has its id, as the problem that its client reads.
    let span = tracing::error_span!("request", id = id.to_str().unwrap_or_default());
    run_and_finish(&gateway, id, request, next).instrument(span).await
}

async fn run_and_finish(gateway: &Gateway, id: HeaderValue, request: Request, next: Next) -> Response {
    let streams = wants_stream(&request);
    let http1 = request.version() < Version::HTTP_2;
    // An answer that a page may not read looks to it like no answer at all, so refusals have these headers too.
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
    // The client has to know that this connection carries no other request: the rest of a body that is too large is
    // not read, and a gateway that drains is there for one more answer only. A stream never has this header:
    // with it some clients accept a stream that was cut as complete.
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

/// Whether this is an EventSource, or asks like one.
fn wants_stream(request: &Request) -> bool {
    const FORMS: [Representation; 3] = [Representation::Json, Representation::EventStream, Representation::Ndjson];
    let path = request.uri().path();
    let asks = || negotiate(request.headers(), &FORMS).is_ok_and(|form| form == Representation::EventStream);
    request.method() == Method::GET
        && (path.ends_with("/events/stream") || path.ends_with("/events") && asks())
}

/// Whether what a status says may be over soon. An EventSource never comes back from any status but 200.
fn is_transient(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn stream_problem_response(gateway: &Gateway, error: &ApiError, id: &HeaderValue) -> Response {
    stream::problem_response(&log_and_describe(error, id), &gateway.ids)
}

/// The problem with the request's id; our own faults go to the log under the same.
fn log_and_describe(error: &ApiError, id: &HeaderValue) -> Problem {
    error.log();
    Problem { instance: id.to_str().ok().map(str::to_owned), ..error.problem().clone() }
}

/// A client's own id for its request, if it is short and plain.
fn request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(REQUEST_ID)?;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    ((1..=128).contains(&id.len()) && id.as_bytes().iter().all(plain)).then(|| id.clone())
}

fn new_request_id(gateway: &Gateway) -> HeaderValue {
    HeaderValue::try_from(gateway.ids.uuid().to_string()).expect("a UUID is plain ASCII")
}

fn write_problem(response: &mut Response, error: &ApiError, id: &HeaderValue) {
    let body = serde_json::to_vec(&log_and_describe(error, id)).expect("a problem has string keys and serializes");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    *response.body_mut() = Body::from(body);
}

/// What an answer says unless its route said otherwise: nothing of it is kept, framed, sniffed or run.
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

/// A panic is a bug: the client gets a problem, the log what it said.
#[expect(clippy::needless_pass_by_value, reason = "the layer hands the panic over")]
pub(super) fn panic_response(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("something else than a text");
    ApiError::internal(format!("a handler panicked: {text}")).into_response()
}

/// Lets in who may ask at all, and counts it.
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
        return Err(ApiError::internal("a request came without its peer's address"));
    };
    Ok(gateway.policy.admit(parts, *peer)?)
}

fn admit_principal(gateway: &Gateway, admission: &Admission) -> Result<(), ApiError> {
    match admission.principal() {
        Some(principal) => gateway.rates().check_request(principal),
        None => Ok(()),
    }
}
