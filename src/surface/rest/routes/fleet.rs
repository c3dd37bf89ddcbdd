//! `/v1/fleet`: members that connect to the gateway and run agents. `/v1/broadcasts`: one message to many agents, sessions and
//! members.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;
use serde_json::value::RawValue;

use super::operations::Routes;
use crate::server::{BodyCharge, ConnectionPermit};
use crate::surface::http::{
    ApiError, ApiRequest, CanAdmin, CanFleet, CanPrompt, IdempotencyHeader, JsonBody, Page, Params,
    Replayed, Result, accept_socket,
};
use crate::surface::rest::fleet_socket::{FleetSocket, check_name, rejected};
use agents::cca::MAX_MESSAGE_BYTES;
use agents::pool::Priority;
use base::types::{AgentDialect, AgentName, PrincipalLimit, Scope, Tenant, Timestamp};
use events::api::{
    BroadcastForm, BroadcastReport, BroadcastTo, CreateBroadcast, FleetMember, FleetMemberList,
    FleetMemberState, MemberCall, ProblemCode, RemovedMembers, RpcResult,
};
use sessions::broadcast::{MAX_CONTENT_BYTES, MAX_TARGETS};
use wire::acp::method_list::route_of;
use wire::acp::{null_to_empty, to_one_line, with_trace};
use wire::fleet::{
    MEMBER_FRAME_BYTES, MemberInfo, MemberKey, MemberState, MemberStatus, REMOVED_TEXT,
};

pub(super) fn routes() -> Routes {
    routes![
        list_members,
        remove_members,
        connect_member,
        drain_member,
        remove_member,
        call_member,
        create_broadcast
    ]
}

/// The longest method of a call, in bytes, and the longest time for its result.
const MAX_METHOD_BYTES: usize = 256;
const MAX_CALL_SECONDS: u64 = 600;
/// The longest resume token of a member of the dialect `cca`, in characters, and the number of tasks without `capacity`.
const MAX_INSTANCE: usize = 128;
const DEFAULT_CAPACITY: usize = 4;

/// Lists the members of the fleet, also those that are not connected.
///
/// Entries are sorted by name. Without `limit` the page has all members.
#[utoipa::path(get, path = "/v1/fleet", responses(
    (status = 200, body = FleetMemberList, description = "A page of members."),
))]
async fn list_members(
    request: ApiRequest<CanAdmin, (), Page<AgentName>>,
) -> Result<Json<FleetMemberList>> {
    let now = request.app.ids.now();
    let members = request.app.fleet.status().into_iter();
    let members = members.map(|status| member_info(status, now)).collect();
    let (members, next_cursor) = request.params.select(members, |member| member.name.clone());
    Ok(Json(FleetMemberList {
        members,
        next_cursor,
    }))
}

/// Drains a member.
///
/// The member gets no new processes. Its processes continue, with their sessions. A drain ends when `acp-gateway connect`
/// or the gateway is started again.
#[utoipa::path(post, path = "/v1/fleet/{member}/drain", responses(
    (status = 204, description = "The member gets no new processes."),
))]
async fn drain_member(request: ApiRequest<CanAdmin, AgentName>) -> Result<StatusCode> {
    let member = request.app.fleet.member(&request.ids);
    let member = member.ok_or_else(ApiError::not_found)?;
    member.start_drain();
    tracing::info!(member = %member.name(), key = request.by.user.name(), "a member of the fleet is being drained");
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a member.
///
/// Its connection ends, and its turns fail with `member_unavailable`. `acp-gateway connect` ends with its processes. The
/// gateway forgets the name, which any key with the scope `fleet` can use again. To exclude a member, also delete its key.
#[utoipa::path(delete, path = "/v1/fleet/{member}", responses(
    (status = 204, description = "The member is removed."),
))]
async fn remove_member(request: ApiRequest<CanAdmin, AgentName>) -> Result<StatusCode> {
    let is_named = |name: &AgentName, _: &Arc<str>| *name == request.ids;
    if remove(&request, is_named).is_empty() {
        return Err(ApiError::not_found());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Removes all members of a user.
///
/// As the removal of each of them. To exclude them, also revoke the user's keys: this removes the members too.
#[utoipa::path(delete, path = "/v1/fleet", responses(
    (status = 200, body = RemovedMembers, description = "The members of the user are removed. There may be none."),
))]
async fn remove_members(
    mut request: ApiRequest<CanAdmin, (), Params>,
) -> Result<Json<RemovedMembers>> {
    let key = request.params.text("key")?;
    let key = key.ok_or_else(|| ApiError::invalid("key", "expected the name of a key"))?;
    request.params.finish()?;
    let members = remove(&request, |_, of| **of == *key);
    Ok(Json(RemovedMembers { members }))
}

fn remove<I, Q>(
    request: &ApiRequest<CanAdmin, I, Q>,
    condition: impl Fn(&AgentName, &Arc<str>) -> bool,
) -> Vec<AgentName> {
    let removed = request.app.fleet.remove_where(condition, REMOVED_TEXT);
    for member in &removed {
        tracing::info!(%member, key = request.by.user.name(), "a member was removed from the fleet");
    }
    removed
}

fn member_info(status: MemberStatus, now: Timestamp) -> FleetMember {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    FleetMember {
        name: status.name,
        state: match status.state {
            MemberState::Connected => FleetMemberState::Connected,
            MemberState::Reconnecting => FleetMemberState::Reconnecting,
            MemberState::Disconnected => FleetMemberState::Disconnected,
        },
        since: now.before(status.since),
        last_heartbeat_at: status.last_heartbeat.map(|span| now.before(span)),
        latency_ms: status.latency.map(millis),
        processes: status.channels,
        capacity: status.info.capacity,
        draining: status.draining,
        version: status.info.version,
        roots: status.info.roots,
        metadata: status.info.metadata,
        key: status.key.to_string(),
    }
}

/// Calls a method of a member.
///
/// A member of `acp-gateway connect` gets the call as a request to a process of its agent, outside a session. A member of the
/// dialect `cca` gets it as a message of this type. Every method is permitted, except those that have their own routes.
#[utoipa::path(post, path = "/v1/fleet/{member}/rpc", request_body = MemberCall, responses(
    (status = 200, body = RpcResult, description = "The result from the member."),
))]
async fn call_member(
    request: ApiRequest<CanAdmin, AgentName>,
    body: JsonBody<MemberCall>,
) -> Result<Json<RpcResult>> {
    if request.app.fleet.member(&request.ids).is_none() {
        return Err(ApiError::not_found());
    }
    let spec = request.agent()?;
    let call = body.value;
    if let Some(route) = route_of(&call.method) {
        let detail = format!("this method has its own route: {route}");
        return Err(ApiError::invalid("/method", detail));
    }
    if !(1..=MAX_METHOD_BYTES).contains(&call.method.len()) {
        let detail = format!("expected 1 to {MAX_METHOD_BYTES} bytes");
        return Err(ApiError::invalid("/method", detail));
    }
    if !(1..=MAX_CALL_SECONDS).contains(&call.timeout_seconds) {
        let detail = format!("expected 1 to {MAX_CALL_SECONDS}");
        return Err(ApiError::invalid("/timeoutSeconds", detail));
    }
    let params = call.params;
    let params = params.map_or_else(|| null_to_empty(RawValue::NULL), to_one_line);
    let params = with_trace(&params, request.trace.as_ref());
    let pool = request.app.pool();
    let lease = pool.short_lease(&spec, &request.by, Priority::Reclaim);
    let mut lease = lease.await?;
    let timeout = Duration::from_secs(call.timeout_seconds);
    let result = to_one_line(lease.call(&call.method, &params, timeout).await?);
    Ok(Json(RpcResult { result }))
}

/// Connects a member of the fleet as a WebSocket.
///
/// `acp-gateway connect` uses this route. The member offers one agent, whose name is that of the member, and runs its
/// processes. The protocol is part of decision 39 and not of this API. With `dialect=cca`, a program connects directly and
/// exchanges JSON messages.
#[utoipa::path(get, path = "/v1/fleet/connect", responses(
    (status = 101, description = "The connection carries the processes of the member."),
))]
async fn connect_member(
    mut request: ApiRequest<CanFleet, (), Params>,
    Extension(held): Extension<ConnectionPermit>,
    Extension(charge): Extension<Arc<BodyCharge>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let description = cca_description(&mut request.params)?;
    request.params.finish()?;
    let ApiRequest { app, by, .. } = request;
    let upgrade = upgrade.map_err(|rejection| ApiError::no_websocket(&rejection))?;
    if by.user.tenant() != Tenant::default() {
        let detail = "the fleet has members of the tenant `default` only";
        return Err(ApiError::new(ProblemCode::Forbidden, detail));
    }
    let guard = app.streams.acquire(&by, "fleet")?;
    let key = MemberKey {
        name: by.user.name().into(),
        names: by.credential().verified.member_names.clone(),
        limits: app.principal_limits.effective(&by),
    };
    let cca = match description {
        None => None,
        Some((name, instance, info)) => {
            let max = key.limits.max(PrincipalLimit::Members);
            let opened = check_name(&app, &name, &key).and_then(|()| {
                let opened = app.cca.open(&name, &by.user, instance, max);
                opened.map_err(|error| rejected(&app, &name, &key, error.to_string()))
            });
            let opened = opened.map_err(|reason| ApiError::new(ProblemCode::Forbidden, reason))?;
            Some((opened, info))
        }
    };
    let max_bytes = cca
        .as_ref()
        .map_or(MEMBER_FRAME_BYTES, |_| MAX_MESSAGE_BYTES);
    held.charge_messages(charge);
    let shutdown = app.shutdown.clone();
    let socket = FleetSocket {
        app,
        admission: by.admission().clone(),
        key,
        cca,
        _guard: guard,
        permit: held,
    };
    Ok(accept_socket(shutdown, upgrade, max_bytes, |stream| {
        socket.run(stream)
    }))
}

/// The name, the resume token and the description of a member of the dialect `cca`. `None`: the member sends them itself.
fn cca_description(params: &mut Params) -> Result<Option<(AgentName, Option<String>, MemberInfo)>> {
    match params.text("dialect")?.as_deref() {
        None => return Ok(None),
        Some("cca") => {}
        Some(_) => return Err(ApiError::invalid("dialect", "expected cca")),
    }
    let name = params.parsed("name", "the name of an agent")?;
    let name = name.ok_or_else(|| ApiError::invalid("name", "the dialect cca needs a name"))?;
    let instance = params.short("instance", MAX_INSTANCE)?;
    let capacity = params.parsed("capacity", "a number from 1 to 256")?;
    let mut roots = params.all("root");
    if roots.is_empty() {
        roots.push("/".to_owned());
    }
    let info = MemberInfo {
        capacity: capacity.unwrap_or(DEFAULT_CAPACITY),
        version: "cca".to_owned(),
        dialect: AgentDialect::Acp,
        roots,
        metadata: BTreeMap::new(),
    };
    Ok(Some((name, instance, info)))
}

/// Sends a message to all or selected agents, sessions and members of the fleet.
///
/// A notification reaches running processes. A prompt is queued in sessions and requires the scope `admin`. Only
/// processes of the user's own sessions, unused processes, and members get the message. The response names each target, and
/// waits for at most 5 seconds for each of them. A user can send six broadcasts in a minute.
#[utoipa::path(post, path = "/v1/broadcasts", request_body = CreateBroadcast, responses(
    (status = 200, body = BroadcastReport, description = "The targets that got the message, and those that did not."),
))]
async fn create_broadcast(
    request: ApiRequest<CanPrompt>,
    key: IdempotencyHeader,
    body: JsonBody<CreateBroadcast>,
) -> Result<Response> {
    let key = key.bind(&body.bytes);
    let broadcast = body.value;
    check_broadcast(&broadcast)?;
    let by = request.by;
    if broadcast.form == BroadcastForm::Prompt {
        by.require(Scope::Admin)?;
    }
    let broadcasts = &request.app.broadcasts;
    let sent = broadcasts.send(&by, by.author(), broadcast, key, request.trace);
    let sent = sent.await?;
    Ok((Replayed(sent.replayed), Json(sent.response)).into_response())
}

fn check_broadcast(broadcast: &CreateBroadcast) -> Result<()> {
    if !(1..=MAX_CONTENT_BYTES).contains(&broadcast.content.len()) {
        let detail = format!("expected 1 to {MAX_CONTENT_BYTES} bytes");
        return Err(ApiError::invalid("/content", detail));
    }
    if let BroadcastTo::Selected(selected) = &broadcast.to
        && !(1..=MAX_TARGETS).contains(&selected.count())
    {
        let detail = format!("expected 1 to {MAX_TARGETS} agents, sessions and members");
        return Err(ApiError::invalid("/to", detail));
    }
    Ok(())
}
