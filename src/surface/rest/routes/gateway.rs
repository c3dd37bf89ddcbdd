//! `/v1`: the version of the gateway, and the rights and limits of the key.

use axum::Json;

use crate::api::{GatewayInfo, GatewayLimits, PrincipalInfo};
use crate::surface::authorized::HasKey;
use crate::surface::rest::extract::ApiRequest;

/// Gets the version of the gateway, and the principal, scopes and limits of the key.
///
/// Any key can read it. `limits` has the values that apply to this key. Counts are per minute or at the same time, as
/// their names say.
#[utoipa::path(
    get,
    path = "/v1",
    responses((status = 200, body = GatewayInfo, description = "The gateway, and the rights and limits of this key."))
)]
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
