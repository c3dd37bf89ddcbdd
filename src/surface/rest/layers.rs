//! The middleware of REST: admission, panics, and problem documents. It is one layer of the router, because
//! axum clones and boxes the service of each layer for each request.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};

use super::error::{ApiError, FailedResponse};
use super::event_stream;
use super::negotiate::{Representation, negotiate};
use crate::api::{Problem, ProblemCode};
use crate::server::RequestId;
use crate::surface::Gateway;

/// Adds the responses for unknown paths and methods, and the middleware, to all routes of the router.
pub(crate) fn with_layers(router: Router<Gateway>, gateway: &Gateway) -> Router<Gateway> {
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(gateway.clone(), respond))
}

async fn not_found() -> ApiError {
    ApiError::new(ProblemCode::NotFound, "no route matches this path")
}

async fn method_not_allowed() -> ApiError {
    ApiError::new(ProblemCode::MethodNotAllowed, "this path supports only the methods in the Allow header")
}

/// Responds to a request. Writes the problem document if it failed.
async fn respond(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let streams = wants_stream(&request);
    let mut response = catch_panic(admit(&gateway, request, next)).await;
    if let Some(FailedResponse(error)) = response.extensions_mut().remove::<FailedResponse>() {
        error.log();
        let problem = Problem { instance: id.map(|id| id.as_str().to_owned()), ..error.problem().clone() };
        if streams && is_transient(response.status()) {
            return event_stream::problem_response(&problem, &gateway.ids);
        }
        write_problem(&mut response, &problem);
    }
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

fn write_problem(response: &mut Response, problem: &Problem) {
    let body = serde_json::to_vec(problem).expect("a problem has string keys and serializes");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    *response.body_mut() = Body::from(body);
}

/// Converts a panic of a handler to a 500 problem.
async fn catch_panic(response: impl Future<Output = Response>) -> Response {
    let mut response = pin!(response);
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| response.as_mut().poll(context)))
            .unwrap_or_else(|panic| Poll::Ready(panic_response(&*panic)))
    })
    .await
}

/// The log has the panic message.
fn panic_response(panic: &(dyn Any + Send)) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("(the panic message is not a string)");
    ApiError::internal(format!("a handler panicked: {text}")).into_response()
}

/// Admits the request, or responds with the reason why it is not admitted.
async fn admit(gateway: &Gateway, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match gateway.requests().admit(&mut parts) {
        Ok(None) => next.run(Request::from_parts(parts, body)).await,
        Ok(Some(response)) => response,
        Err(error) => ApiError::from(error).into_response(),
    }
}

#[cfg(test)]
mod tests;
