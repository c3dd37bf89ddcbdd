//! `/livez` and `/readyz`: for whoever runs the gateway.

use axum::extract::State;

use crate::api::ProblemCode;
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

/// The gateway takes work: it does not drain, and its disk has room.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "operations",
    responses((status = 200, body = String, content_type = "text/plain", description = "`ok`"))
)]
pub(in crate::http) async fn readyz(State(gateway): State<Gateway>) -> Result<&'static str, ApiError> {
    if gateway.shutdown.is_draining() {
        return Err(ApiError::draining());
    }
    if gateway.log.alarm().is_some() {
        let detail = "the disk is full or nearly full: new sessions and prompts are refused, and reads go on";
        return Err(ApiError::new(ProblemCode::StorageFull, detail));
    }
    Ok("ok")
}
