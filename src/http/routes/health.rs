//! `/livez` and `/readyz`: for whoever runs the gateway.

use axum::extract::State;

use crate::http::error::ApiError;
use crate::http::state::Gateway;

/// The process answers.
#[utoipa::path(
    get,
    path = "/livez",
    tag = "operations",
    responses((status = 200, body = String, content_type = "text/plain", description = "`ok`"))
)]
pub(in crate::http) async fn livez() -> &'static str {
    "ok"
}

/// The gateway takes work.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "operations",
    responses((status = 200, body = String, content_type = "text/plain", description = "`ok`"))
)]
pub(in crate::http) async fn readyz(State(gateway): State<Gateway>) -> Result<&'static str, ApiError> {
    if gateway.shutdown.draining() { Err(ApiError::draining()) } else { Ok("ok") }
}
