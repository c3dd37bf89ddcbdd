//! `/livez` and `/readyz`: the probes for an orchestrator.

use axum::extract::State;

use crate::api::ProblemCode;
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;

/// Liveness: the process responds.
///
/// The status is 200 while the process can answer. The probe needs no key and has no limit; it does not look at the
/// store or at agents.
#[utoipa::path(
    get,
    path = "/livez",
    responses((status = 200, body = String, content_type = "text/plain", description = "`ok`"))
)]
pub(super) async fn livez() -> &'static str {
    "ok"
}

/// Readiness: the gateway accepts new work.
///
/// The response is 503 while the gateway drains, and 507 while its disk has too little room.
#[utoipa::path(
    get,
    path = "/readyz",
    responses((status = 200, body = String, content_type = "text/plain", description = "`ok`"))
)]
pub(super) async fn readyz(State(gateway): State<Gateway>) -> Result<&'static str, ApiError> {
    if gateway.shutdown.is_draining() {
        return Err(ApiError::draining());
    }
    if gateway.log().storage_full() {
        let detail = "the disk is full or nearly full: the gateway rejects new sessions and prompts, and accepts only reads";
        return Err(ApiError::new(ProblemCode::StorageFull, detail));
    }
    Ok("ok")
}
