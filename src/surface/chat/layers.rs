//! The admission of requests, and the format of errors, for each chat protocol.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::json;
use tower_http::catch_panic::CatchPanicLayer;

use crate::surface::http::{AppState, FailedResponse, method_not_allowed, panic_response};
use events::api::{Problem, PublicPath};

/// Tells the SDKs of `OpenAI` not to repeat a request.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// How a protocol reports an error before a stream begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ErrorFormat {
    /// The members of a problem document, and `error` as `OpenAI` defines it.
    Json,
    /// The explanation alone: the clients show the body.
    Text,
}

pub(crate) fn with_layers(
    router: Router<AppState>,
    app: &AppState,
    format: ErrorFormat,
) -> Router<AppState> {
    router
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(from_fn_with_state((app.clone(), format), respond))
}

async fn respond(
    State((app, format)): State<(AppState, ErrorFormat)>,
    request: Request,
    next: Next,
) -> Response {
    let public = request.extensions().get::<PublicPath>().cloned();
    let mut response = app.admit(request, next).await;
    if let Some(FailedResponse(error)) = response.extensions_mut().remove::<FailedResponse>() {
        error.log();
        write_error(
            &mut response,
            &error.problem().below(public.as_ref()),
            format,
        );
    }
    response
}

fn write_error(response: &mut Response, problem: &Problem, format: ErrorFormat) {
    let (media_type, body) = match format {
        ErrorFormat::Json => ("application/json", error_body(problem).to_string()),
        ErrorFormat::Text => ("text/plain; charset=utf-8", error_text(problem)),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    if problem.status == StatusCode::CONFLICT.as_u16() || !problem.retryable {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    *response.body_mut() = Body::from(body);
}

/// The explanation, and the place of an invalid member.
fn error_text(problem: &Problem) -> String {
    match &problem.errors[..] {
        [error] if !error.pointer.is_empty() => format!("{} ({})", problem.detail, error.pointer),
        _ => problem.detail.clone(),
    }
}

fn error_body(problem: &Problem) -> serde_json::Value {
    let mut body = serde_json::to_value(problem).unwrap_or_default();
    let kind = match problem.status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let mut pointers = problem.errors.iter().map(|error| &error.pointer);
    let param = pointers.find(|pointer| !pointer.is_empty());
    body["error"] = json!({ "message": problem.detail, "type": kind, "code": problem.code.as_str(), "param": param });
    body
}
