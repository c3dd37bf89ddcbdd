//! The middleware of REST: problem documents with admission, and panics. It has few layers, because axum clones
//! and boxes the service of each layer for each request.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http::{HeaderValue, Method, StatusCode, header};
use tower_http::catch_panic::CatchPanicLayer;

use super::compressed::{compress, is_requested};
use super::error::{ApiError, FailedResponse};
use super::negotiate::{Representation, negotiate};
use crate::api::{Problem, ProblemCode};
use crate::auth::Admission;
use crate::event::{ControlFrame, ProblemFrame};
use crate::server::{InternalError, RequestId, event_response};
use crate::stream::{Encoder, Sse, retry_delay};
use crate::surface::Gateway;
use crate::types::{Ids, PublicPath};

/// Adds the responses for unknown paths and methods, and the middleware, to all routes of the router.
pub(crate) fn with_layers(router: Router<Gateway>, gateway: &Gateway) -> Router<Gateway> {
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(from_fn_with_state(gateway.clone(), respond))
}

async fn not_found() -> ApiError {
    ApiError::new(ProblemCode::NotFound, "no route matches this path")
}

pub(crate) async fn method_not_allowed() -> ApiError {
    ApiError::new(
        ProblemCode::MethodNotAllowed,
        "this path supports only the methods in the Allow header",
    )
}

/// Admits a request and responds to it. Writes the problem document if it failed.
async fn respond(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let public = request.extensions().get::<PublicPath>().cloned();
    let streams = wants_stream(&request);
    let path = request.uri().path();
    let path = public
        .as_ref()
        .map_or_else(|| path.to_owned(), |public| public.join(path));
    let compresses = is_requested(request.method(), request.headers());
    let mut response = admit(&gateway, request, next).await;
    if let Some(FailedResponse(error)) = response.extensions_mut().remove::<FailedResponse>() {
        error.log();
        let problem = Problem {
            instance: id.map(|id| id.instance(&path)),
            ..error.problem().below(public.as_ref())
        };
        // A client without an accepted key gets the status: it has no stream to return to.
        if streams && !error.is_of_admission() && is_transient(response.status()) {
            return problem_stream(&problem, &gateway.ids);
        }
        write_problem(&mut response, &problem);
    }
    compress(response, compresses, &gateway.shutdown).await
}

/// Reports a temporary problem as a stream with a `problem` frame. A status would stop an `EventSource` from
/// reconnecting.
fn problem_stream(problem: &Problem, ids: &Ids) -> Response {
    let (mut encoder, mut body) = (Sse::<true>, BytesMut::new());
    encoder.retry(
        &mut body,
        retry_delay(ids, problem.retry_after_seconds.unwrap_or(1) * 1000, 1000),
    );
    encoder.control(
        &mut body,
        &ControlFrame::new(&ProblemFrame { problem }, ids.now()),
    );
    let mut response = event_response(encoder.media_type(), Body::from(body.freeze()));
    if problem.code == ProblemCode::Internal {
        response.extensions_mut().insert(InternalError);
    }
    response
}

/// Whether the request is for a stream: by its path, or by its `Accept` header.
fn wants_stream(request: &Request) -> bool {
    const FORMS: [Representation; 3] = [
        Representation::Json,
        Representation::EventStream,
        Representation::Ndjson,
    ];
    let path = request.uri().path();
    let asks = || {
        negotiate(request.headers(), &FORMS).is_ok_and(|form| form == Representation::EventStream)
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
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    *response.body_mut() = Body::from(body);
}

/// Converts a panic of a handler to a 500 problem. The log has the panic message.
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

/// Admits the request, or responds with the reason why it is not admitted.
pub(crate) async fn admit(gateway: &Gateway, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match gateway.requests().admit(&mut parts) {
        Ok(None) => {
            let author = parts
                .extensions
                .get::<Arc<Admission>>()
                .and_then(|admission| admission.author());
            let response = next.run(Request::from_parts(parts, body)).await;
            if response.status() == StatusCode::FORBIDDEN
                && let Some(author) = author
            {
                gateway.audit_forbidden(&author);
            }
            response
        }
        Ok(Some(response)) => response,
        Err(error) => ApiError::from(error).into_response(),
    }
}

#[cfg(test)]
mod tests;
