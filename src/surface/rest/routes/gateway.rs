//! `/v1`: the version of the gateway, and the rights and limits of the key.

use axum::Json;
use axum::extract::State;

use crate::surface::http::{ApiError, ApiRequest, Gateway, HasKey};
use events::api::{GatewayInfo, GatewayLimits, PrincipalInfo, ProblemCode};

/// Gets the version of the gateway, and the principal, scopes and limits of the key.
///
/// Any key can read it. `limits` has the values that apply to this key. Counts are per minute or at the same time, as
/// their names say.
#[utoipa::path(get, path = "/v1", responses(
    (status = 200, body = GatewayInfo, description = "The gateway, and the rights and limits of this key."),
))]
pub(super) async fn get_gateway(request: ApiRequest<HasKey>) -> Json<GatewayInfo> {
    let ApiRequest { gateway, by, .. } = request;
    Json(GatewayInfo {
        name: "acp-gateway".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: gateway.epoch(),
        principal: PrincipalInfo {
            id: by.id.to_string(),
            tenant: by.tenant.as_str().to_owned(),
        },
        scopes: by.scopes.iter().collect(),
        limits: GatewayLimits::of(&gateway.limits, &gateway.principal_limits.effective(&by)),
    })
}

/// Liveness: the process responds.
///
/// The status is 200 while the process can answer. The probe needs no key and has no limit; it does not look at the
/// store or at agents.
#[utoipa::path(get, path = "/livez", responses(
    (status = 200, body = String, content_type = "text/plain", description = "`ok`"),
))]
pub(super) async fn livez() -> &'static str {
    "ok"
}

/// Readiness: the gateway accepts new work.
///
/// The response is 503 while the gateway drains, and 507 while its disk has too little room.
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, body = String, content_type = "text/plain", description = "`ok`"),
))]
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
