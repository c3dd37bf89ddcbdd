//! The admission of a request, and the responses that precede any handler.

use std::any::Any;
use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use super::error::ApiError;
use super::state::Gateway;
use crate::auth::Admission;
use events::api::ProblemCode;

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

pub(crate) async fn method_not_allowed() -> ApiError {
    ApiError::new(
        ProblemCode::MethodNotAllowed,
        "this path supports only the methods in the Allow header",
    )
}
