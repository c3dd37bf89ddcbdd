//! `/v1`: the version of the gateway, the rights and limits of the key, and tickets: short-lived credentials for a URL, because
//! an `EventSource` cannot send headers.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;

use super::operations::Routes;
use crate::config::Limits;
use crate::surface::http::{ApiError, ApiRequest, AppState, CanRead, HasKey, JsonBody, Result};
use base::types::{EffectiveLimits, PrincipalLimit, Scope};
use events::api::{
    CreateTicket, GatewayInfo, GatewayLimits, PerKeyLimits, PerSessionLimits, PrincipalInfo,
    ProblemCode, PublicPath, Ticket,
};
use log::audit::Counted;
use sessions::limits::IDEMPOTENCY_KEY_MAX_AGE;

pub(super) fn routes() -> Routes {
    routes![get_gateway, create_ticket, livez, readyz]
}

/// Gets the version of the gateway, and the user, scopes and limits of the key.
///
/// Any key can read it. `limits` has the values that apply to the user. Counts are per minute or at the same time, as
/// their names say.
#[utoipa::path(get, path = "/v1", responses(
    (status = 200, body = GatewayInfo, description = "The gateway, and the rights and limits of this key."),
))]
async fn get_gateway(request: ApiRequest<HasKey>) -> Json<GatewayInfo> {
    let ApiRequest { app, by, .. } = request;
    Json(GatewayInfo {
        name: "acp-gateway".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: app.epoch(),
        principal: PrincipalInfo {
            id: by.user.name().to_owned(),
            tenant: by.user.tenant().as_str().to_owned(),
        },
        scopes: by.scopes.iter().collect(),
        limits: limits(&app.limits, &app.principal_limits.effective(&by)),
    })
}

fn limits(app: &Limits, principal: &EffectiveLimits) -> GatewayLimits {
    let sessions = &app.sessions;
    GatewayLimits {
        max_body_bytes: app.http.max_body_bytes,
        max_prompt_bytes: sessions.max_prompt_bytes,
        max_file_bytes: sessions.max_file_bytes,
        idempotency_key_max_age_seconds: IDEMPOTENCY_KEY_MAX_AGE.as_secs(),
        per_session: PerSessionLimits {
            max_queued_prompts: sessions.max_session_queued_prompts,
            max_pending_requests: sessions.max_pending_requests,
        },
        per_key: PerKeyLimits {
            max_requests_per_minute: principal.get(PrincipalLimit::Requests),
            max_prompts_per_minute: principal.get(PrincipalLimit::Prompts),
            max_streams: principal.get(PrincipalLimit::Streams),
            max_live_sessions: principal.get(PrincipalLimit::LiveSessions),
            max_queued_prompts: principal.get(PrincipalLimit::QueuedPrompts),
            max_queued_task_bytes: principal.get(PrincipalLimit::QueuedTaskBytes),
            max_fleet_members: principal.get(PrincipalLimit::Members),
        },
    }
}

/// Liveness: the process responds.
///
/// The status is 200 while the process can answer. The probe needs no key and has no limit; it does not look at the
/// store or at agents.
#[utoipa::path(get, path = "/livez", responses(
    (status = 200, body = String, content_type = "text/plain", description = "`ok`"),
))]
async fn livez() -> &'static str {
    "ok"
}

/// Readiness: the gateway accepts new work.
///
/// The response is 503 while the gateway drains, and 507 while its disk has too little room.
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, body = String, content_type = "text/plain", description = "`ok`"),
))]
async fn readyz(State(app): State<AppState>) -> Result<&'static str> {
    check_ready(&app).map(|()| "ok")
}

pub(super) fn check_ready(app: &AppState) -> Result<()> {
    if app.shutdown.is_draining() {
        return Err(ApiError::draining());
    }
    if app.log().storage_full() {
        let detail = "the disk is full or nearly full: the gateway rejects new sessions and prompts, and accepts only reads";
        return Err(ApiError::new(ProblemCode::StorageFull, detail));
    }
    Ok(())
}

/// Creates a ticket, which authenticates GET requests for streams and terminals of the given paths.
///
/// Send the ticket as `?ticket=`. An `EventSource` or a WebSocket in a browser cannot send an `Authorization`
/// header.
#[utoipa::path(post, path = "/v1/tickets", request_body = CreateTicket, responses(
    (status = 201, body = Ticket, description = "The ticket. No other response contains it."),
))]
async fn create_ticket(
    request: ApiRequest<CanRead>,
    public: Option<Extension<PublicPath>>,
    body: JsonBody<CreateTicket>,
) -> Result<Response> {
    // Otherwise the holder of a ticket could renew it for ever.
    if request.by.credential().ticket.is_some() {
        let detail = "creating a ticket requires a key, not a ticket";
        return Err(ApiError::new(ProblemCode::Forbidden, detail));
    }
    let mut paths = body.value.paths;
    if let Some(Extension(public)) = public {
        for path in &mut paths {
            if let Some(below) = public.strip(path) {
                *path = below.to_owned();
            }
        }
    }
    if paths.is_empty() || paths.len() > 64 {
        return Err(ApiError::invalid("/paths", "expected 1 to 64 paths"));
    }
    for (index, path) in paths.iter().enumerate() {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-');
        let known = path.len() <= 256 && path.starts_with("/v1/") && path.bytes().all(plain);
        // Others may read a URL, for example in logs. Only streams and WebSockets in a browser need a ticket.
        let socket = is_sign_in_socket(path);
        if !known || !(socket || path.ends_with("/events") || path.ends_with("/events/stream")) {
            let detail = "expected a path without a query: a stream below /v1 that ends with /events/stream or /events, or the WebSocket of a sign-in";
            return Err(ApiError::invalid(format!("/paths/{index}"), detail));
        }
        if socket {
            request.by.require(Scope::Admin)?;
        }
    }
    let app = &request.app;
    let tickets = app.policy.tickets.clone();
    let holder = request.by.credential().verified.clone();
    let issue = move || tickets.issue(&holder, paths);
    let issued = app.shutdown.spawn_blocking(issue).await;
    let issued = issued.map_err(ApiError::internal)?;
    let issued = issued.map_err(ApiError::internal)?;
    let counted = app.audit.counted();
    let now = app.ids.now();
    counted.by_key(&request.by.author(), Counted::TicketCreated, now);
    let ticket = Ticket {
        ticket: issued.ticket,
        expires_at: issued.expires_at,
    };
    Ok((StatusCode::CREATED, Json(ticket)).into_response())
}

fn is_sign_in_socket(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    matches!(parts[..], ["", "v1", "agents", _, "auth", "terminals", _])
}
