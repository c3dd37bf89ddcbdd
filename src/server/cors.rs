//! CORS headers, only for the origins that the operator lists.
//!
//! The policy decides whether an origin is listed. The gateway reads no cookies, so credentials are never
//! allowed.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// Every request header that a route or a layer reads from a client. `tests/it/cors.rs` compares the list
/// with the OpenAPI document, which does not have the headers of `/acp` and of the
/// chat protocols.
const REQUEST_HEADERS: &str = "accept, authorization, content-type, last-event-id, idempotency-key, prefer, if-match, \
    if-none-match, if-range, range, x-request-id, traceparent, tracestate, acp-connection-id, acp-session-id, \
    x-acp-session-id, x-acp-history, x-conversation-id, x-stainless-arch, x-stainless-helper-method, x-stainless-lang, \
    x-stainless-os, x-stainless-package-version, x-stainless-retry-count, x-stainless-runtime, \
    x-stainless-runtime-version, x-stainless-timeout";
/// Every response header that a client uses. `tests/it/cors.rs` compares the list with the OpenAPI document and with
/// some responses.
const EXPOSED_HEADERS: &str = "location, etag, retry-after, ratelimit, ratelimit-policy, preference-applied, \
    idempotency-replayed, content-range, content-disposition, accept-ranges, allow, www-authenticate, x-request-id, \
    acp-connection-id, x-acp-session-id, x-acp-history, x-vercel-ai-ui-message-stream";
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";

/// The response to the preflight request of a browser.
pub(super) fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(METHODS),
    );
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static(REQUEST_HEADERS),
    );
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static("600"),
    );
    response
}

/// Permits a page of this origin to read the response.
pub(super) fn allow(headers: &mut HeaderMap, origin: &str) {
    let Ok(origin) = HeaderValue::from_str(origin) else {
        return;
    };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(EXPOSED_HEADERS),
    );
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
