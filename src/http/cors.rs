//! CORS: off, but for the origins that the operator listed, and then exactly these headers.
//!
//! Whether an origin is listed was decided by the policy; no cookie is ever read, so credentials are never allowed.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};

const REQUEST_HEADERS: &str = "authorization, content-type, last-event-id, idempotency-key, prefer, if-match, \
    if-none-match, if-range, range, traceparent";
const EXPOSED_HEADERS: &str = "location, etag, retry-after, preference-applied, idempotency-replayed, \
    content-range, x-request-id";
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";

/// The answer to what a browser asks before the real request.
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
