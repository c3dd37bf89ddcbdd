//! The middleware of REST: problem documents with admission, and the compression of responses. It has few layers, because axum clones
//! and boxes the service of each layer for each request.

use std::io::Write as _;

use axum::Router;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tower_http::catch_panic::CatchPanicLayer;

use super::negotiate::{Representation, negotiate};
use crate::server::{InternalError, RequestId, SharedBody, event_response};
use crate::stream::{Encoder, Sse, retry_delay};
use crate::surface::http::{
    ApiError, AppState, FailedResponse, accepts_encoding, method_not_allowed, panic_response,
};
use base::shutdown::Shutdown;
use base::types::Ids;
use events::api::{Problem, ProblemCode, PublicPath};
use events::event::{ControlFrame, ProblemFrame};

pub(crate) fn with_layers(router: Router<AppState>, app: &AppState) -> Router<AppState> {
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(from_fn_with_state(app.clone(), respond))
}

async fn not_found() -> ApiError {
    ApiError::new(ProblemCode::NotFound, "no route matches this path")
}

async fn respond(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let public = request.extensions().get::<PublicPath>().cloned();
    let streams = wants_stream(&request);
    let path = request.uri().path();
    let path = match &public {
        Some(public) => public.join(path),
        None => path.to_owned(),
    };
    let compresses = is_requested(request.method(), request.headers());
    let mut response = app.admit(request, next).await;
    if let Some(FailedResponse(error)) = response.extensions_mut().remove::<FailedResponse>() {
        error.log();
        let problem = Problem {
            instance: id.map(|id| id.instance(&path)),
            ..error.problem().below(public.as_ref())
        };
        // A client without an accepted key gets the status: it has no stream to return to.
        if streams && !error.is_of_admission() && is_transient(response.status()) {
            return problem_stream(&problem, &app.ids);
        }
        write_problem(&mut response, &problem);
    }
    compress(response, compresses, &app.shutdown).await
}

/// Reports a temporary problem as a stream with a `problem` frame. A status would stop an `EventSource` from
/// reconnecting.
fn problem_stream(problem: &Problem, ids: &Ids) -> Response {
    let mut encoder = Sse::<true>;
    let mut body = BytesMut::new();
    let wait_ms = problem.retry_after_seconds.unwrap_or(1) * 1000;
    encoder.retry(&mut body, retry_delay(ids, wait_ms, 1000));
    let frame = ControlFrame::new(&ProblemFrame { problem }, ids.now());
    encoder.control(&mut body, &frame);
    let mut response = event_response(encoder.media_type(), Body::from(body.freeze()));
    if problem.code == ProblemCode::Internal {
        response.extensions_mut().insert(InternalError);
    }
    response
}

fn wants_stream(request: &Request) -> bool {
    const FORMS: [Representation; 3] = [
        Representation::Json,
        Representation::EventStream,
        Representation::Ndjson,
    ];
    let path = request.uri().path();
    let asks = || {
        matches!(
            negotiate(request.headers(), &FORMS),
            Ok(Representation::EventStream)
        )
    };
    request.method() == Method::GET
        && (path.ends_with("/events/stream")
            || (path.ends_with("/events") || path == "/v1/audit") && asks())
}

/// Whether the condition behind a status is temporary. An EventSource does not reconnect after any status but
/// 200.
fn is_transient(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn write_problem(response: &mut Response, problem: &Problem) {
    let body = serde_json::to_vec(problem).expect("a problem has string keys and serializes");
    let kind = HeaderValue::from_static("application/problem+json");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    *response.body_mut() = Body::from(body);
}

/// Smaller bodies gain nothing.
const MIN_BYTES: u64 = 1024;
/// Larger bodies are sent as they are. No page of the API reaches this size.
const MAX_BYTES: u64 = 16 << 20;

pub(super) fn is_requested(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::GET && accepts_encoding(headers, "gzip")
}

/// Only responses to GET are compressed. Answers with keys, tickets and secrets belong to other methods, or are shorter than
/// any compressed response (`GET /v1/webhooks/secret`): their compressed length would depend on the secret.
pub(super) async fn compress(response: Response, requested: bool, shutdown: &Shutdown) -> Response {
    if !is_compressible(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let vary = HeaderValue::from_static("accept-encoding");
    parts.headers.append(header::VARY, vary);
    if !requested {
        return Response::from_parts(parts, body);
    }
    let plain = to_bytes(body, usize::MAX).await;
    let plain = plain.expect("the body is in memory");
    let copy = plain.clone();
    let compressed = shutdown.spawn_blocking(move || gzip(&copy)).await;
    // The runtime ends.
    let Ok(compressed) = compressed else {
        return Response::from_parts(parts, Body::from(plain));
    };
    parts.extensions.remove::<SharedBody>();
    let headers = &mut parts.headers;
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(compressed.len()));
    weaken_tag(headers);
    Response::from_parts(parts, Body::from(compressed))
}

/// Whether the response is JSON of the API or a text of the documentation, in memory. A part of a file, and a file that a
/// client may read in parts, has the bytes of the file.
fn is_compressible(response: &Response) -> bool {
    let headers = response.headers();
    let media_type = headers.get(header::CONTENT_TYPE);
    let media_type = media_type.map_or(&b""[..], HeaderValue::as_bytes);
    let is_embedded = response.extensions().get::<SharedBody>().is_some();
    let is_text = media_type.starts_with(b"application/json")
        || is_embedded && media_type.starts_with(b"text/");
    let size = response.body().size_hint().exact();
    is_text
        && response.status() == StatusCode::OK
        && !headers.contains_key(header::CONTENT_ENCODING)
        // The route has selected the form of its file.
        && !headers.contains_key(header::VARY)
        && !headers.contains_key(header::ACCEPT_RANGES)
        && size.is_some_and(|size| (MIN_BYTES..=MAX_BYTES).contains(&size))
}

/// A strong tag names exact bytes (RFC 9110, section 8.8.1).
fn weaken_tag(headers: &mut HeaderMap) {
    let tag = headers.get(header::ETAG).map(HeaderValue::as_bytes);
    let Some(tag) = tag.filter(|tag| tag.starts_with(b"\"")) else {
        return;
    };
    let weak = HeaderValue::from_bytes(&[b"W/", tag].concat());
    headers.insert(header::ETAG, weak.expect("a tag is visible ASCII"));
}

fn gzip(plain: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    written.expect("memory accepts all bytes").into()
}

#[cfg(test)]
mod tests;
