//! Admission and bodies of requests, and the format of errors, for each chat protocol.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::json;
use tower_http::catch_panic::CatchPanicLayer;

use crate::surface::http::Gateway;
use crate::surface::http::json;
use crate::surface::http::{ApiError, FailedResponse, admit, method_not_allowed, panic_response};
use crate::surface::http::{Authorized, RequiredScope};
use crate::surface::http::{BodyLimit, has_media_type, read_body};
use base::types::PublicPath;
use events::api::{Problem, ProblemCode};

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
    router: Router<Gateway>,
    gateway: &Gateway,
    format: ErrorFormat,
) -> Router<Gateway> {
    router
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(from_fn_with_state((gateway.clone(), format), respond))
}

async fn respond(
    State((gateway, format)): State<(Gateway, ErrorFormat)>,
    request: Request,
    next: Next,
) -> Response {
    let public = request.extensions().get::<PublicPath>().cloned();
    let mut response = admit(&gateway, request, next).await;
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

/// The largest body. It contains the whole history with all files. The limit of a prompt applies to the new message.
const MAX_BODY: BodyLimit = BodyLimit::fixed(32 << 20);

/// The key, the head and the body of a request.
pub(crate) async fn read_json<S: RequiredScope, T: DeserializeOwned>(
    gateway: &Gateway,
    request: Request,
) -> Result<(Authorized<S>, Parts, T), ApiError> {
    let (parts, body) = request.into_parts();
    let by = Authorized::from_parts(&parts)?;
    if !has_media_type(&parts.headers, &["application/json"]) {
        let detail = "the body must be application/json";
        return Err(ApiError::new(ProblemCode::UnsupportedMediaType, detail));
    }
    let bytes = read_body(&parts, body, MAX_BODY, gateway.limits.body_timeout).await?;
    let value = json::parse(&bytes, gateway.limits.max_json_depth)?;
    Ok((by, parts, value))
}
