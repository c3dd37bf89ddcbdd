//! `/v1/fleet`: members that connect to the gateway and run agents.

use std::time::Duration;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;
use axum::{Extension, Json};
use http::StatusCode;

use crate::api::{FleetMember, FleetMemberList, FleetMemberState, ProblemCode};
use crate::fleet::{MEMBER_FRAME_BYTES, MemberState, MemberStatus};
use crate::server::ConnectionPermit;
use crate::surface::authorized::{CanAdmin, CanFleet};
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::ApiRequest;
use crate::surface::rest::fleet_socket::FleetSocket;
use crate::types::{AgentName, Timestamp};

/// Lists the members of the fleet, also those that are not connected.
#[utoipa::path(
    get,
    path = "/v1/fleet",
    responses((status = 200, body = FleetMemberList, description = "All members. There is only one page."))
)]
pub(super) async fn list_members(request: ApiRequest<CanAdmin>) -> Json<FleetMemberList> {
    let now = request.gateway.ids.now();
    let members = request.gateway.fleet.status().into_iter().map(|status| member_info(status, now)).collect();
    Json(FleetMemberList { members, next_cursor: None })
}

/// Drains a member.
///
/// The member gets no new processes. Its processes continue, with their sessions. A drain ends when `acp-gateway connect`
/// or the gateway is started again.
#[utoipa::path(
    post,
    path = "/v1/fleet/{member}/drain",
    responses((status = 204, description = "The member gets no new processes."))
)]
pub(super) async fn drain_member(request: ApiRequest<CanAdmin, AgentName>) -> Result<StatusCode, ApiError> {
    let member = request.gateway.fleet.member(&request.ids).ok_or_else(ApiError::not_found)?;
    member.start_drain();
    tracing::info!(member = %member.name(), key = %request.by.id, "a member of the fleet is being drained");
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a member.
///
/// Its connection ends, and its turns fail with `member_unavailable`. `acp-gateway connect` ends with its processes. The
/// gateway forgets the name, which any key with the scope `fleet` can use again. To exclude a member, also delete its key.
#[utoipa::path(
    delete,
    path = "/v1/fleet/{member}",
    responses((status = 204, description = "The member is removed."))
)]
pub(super) async fn remove_member(request: ApiRequest<CanAdmin, AgentName>) -> Result<StatusCode, ApiError> {
    if !request.gateway.fleet.remove(&request.ids) {
        return Err(ApiError::not_found());
    }
    tracing::info!(member = %request.ids, key = %request.by.id, "a member was removed from the fleet");
    Ok(StatusCode::NO_CONTENT)
}

fn member_info(status: MemberStatus, now: Timestamp) -> FleetMember {
    let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    let before = |span| Timestamp::from_millis(now.as_millis().saturating_sub(millis(span)));
    FleetMember {
        name: status.name,
        state: match status.state {
            MemberState::Connected => FleetMemberState::Connected,
            MemberState::Reconnecting => FleetMemberState::Reconnecting,
            MemberState::Disconnected => FleetMemberState::Disconnected,
        },
        since: before(status.since),
        last_heartbeat_at: status.last_heartbeat.map(before),
        latency_ms: status.latency.map(|latency| u64::try_from(latency.as_millis()).unwrap_or(u64::MAX)),
        processes: status.channels,
        capacity: status.info.capacity,
        draining: status.draining,
        version: status.info.version,
        roots: status.info.roots,
        metadata: status.info.metadata,
        key: status.key.to_string(),
    }
}

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
