//! CORS: off, but for the origins that the operator listed, and then exactly these headers.
//!
//! The policy decides whether an origin is listed. The gateway reads no cookies, so credentials are never allowed.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// Every request header that a route or a layer reads from a client. `tests/it/cors.rs` compares the list with the
/// OpenAPI document.
const REQUEST_HEADERS: &str = "accept, authorization, content-type, last-event-id, idempotency-key, prefer, if-match, \
    if-none-match, if-range, range, x-request-id, traceparent, tracestate";
/// Every response header that a client acts on. `tests/it/cors.rs` compares the list with the answers.
const EXPOSED_HEADERS: &str = "location, etag, retry-after, ratelimit, ratelimit-policy, preference-applied, \
    idempotency-replayed, content-range, content-disposition, accept-ranges, allow, www-authenticate, x-request-id";
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";

/// The answer to the preflight request of a browser.
pub(super) fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(REQUEST_HEADERS));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Lets the page of that origin read the answer.
pub(super) fn allow(headers: &mut HeaderMap, origin: &str) {
    let Ok(origin) = HeaderValue::from_str(origin) else { return };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
