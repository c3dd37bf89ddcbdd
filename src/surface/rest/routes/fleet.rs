//! `/v1/fleet`: members that connect to the gateway and run agents.

use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;

use crate::api::ProblemCode;
use crate::fleet::MEMBER_FRAME_BYTES;
use crate::server::ConnectionPermit;
use crate::surface::authorized::CanFleet;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::ApiRequest;
use crate::surface::rest::fleet_socket::FleetSocket;

/// Connects a member of the fleet as a WebSocket.
///
/// `acp-gateway connect` uses this route. The member offers one agent, whose name is that of the member, and runs its
/// processes. The protocol is part of decision 39 and not of this API.
#[utoipa::path(
    get,
    path = "/v1/fleet/connect",
    responses((status = 101, description = "The connection carries the processes of the member."))
)]
pub(super) async fn connect_member(
    request: ApiRequest<CanFleet>,
    held: Option<Extension<ConnectionPermit>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let ApiRequest { gateway, by, .. } = request;
    let Some(Extension(held)) = held else {
        return Err(ApiError::internal("the request has no connection permit"));
    };
    let upgrade = upgrade.map_err(|rejection| {
        let detail = format!("this path requires a WebSocket upgrade: {}", rejection.body_text());
        ApiError::new(ProblemCode::Malformed, detail)
    })?;
    let guard = gateway.streams().acquire(&by)?;
    let shutdown = gateway.shutdown.clone();
    let admission = by.admission().clone();
    let socket = FleetSocket { gateway, admission, key: by.id.clone(), _guard: guard, _permit: held };
    let upgrade = upgrade.max_message_size(MEMBER_FRAME_BYTES).max_frame_size(MEMBER_FRAME_BYTES);
    // The upgrade runs in an untracked task. Only the tracked task makes a stop wait for the socket.
    Ok(upgrade.on_upgrade(move |stream| async move { drop(shutdown.spawn_client(socket.run(stream))) }))
}
