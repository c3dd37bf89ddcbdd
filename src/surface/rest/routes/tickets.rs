//! `/v1/tickets`: short-lived credentials for a URL, because an `EventSource` cannot send headers.

use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;

use crate::api::{CreateTicket, ProblemCode, Ticket};
use crate::audit::Counted;
use crate::surface::authorized::{AccessError, CanRead};
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{ApiRequest, JsonBody};
use crate::types::{PublicPath, Scope};

/// Creates a ticket, which authenticates GET requests for streams and terminals of the given paths.
///
/// Send the ticket as `?ticket=`. An `EventSource` or a WebSocket in a browser cannot send an `Authorization`
/// header.
#[utoipa::path(
    post,
    path = "/v1/tickets",
    request_body = CreateTicket,
    responses((status = 201, body = Ticket, description = "The ticket. No other response contains it."))
)]
pub(super) async fn create_ticket(
    request: ApiRequest<CanRead>,
    public: Option<Extension<PublicPath>>,
    body: JsonBody<CreateTicket>,
) -> Result<Response, ApiError> {
    // Otherwise the holder of a ticket could renew it for ever.
    if request.by.credential().is_ticket() {
        return Err(ApiError::new(
            ProblemCode::Forbidden,
            "creating a ticket requires a key, not a ticket",
        ));
    }
    let below = |path: &str| {
        public
            .as_ref()
            .and_then(|Extension(public)| public.strip(path).map(str::to_owned))
    };
    let paths: Vec<String> = body
        .value
        .paths
        .into_iter()
        .map(|path| below(&path).unwrap_or(path))
        .collect();
    if paths.is_empty() || paths.len() > 64 {
        return Err(ApiError::invalid("/paths", "expected 1 to 64 paths"));
    }
    for (index, path) in paths.iter().enumerate() {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-');
        let known = path.len() <= 256 && path.starts_with("/v1/") && path.bytes().all(plain);
        // Others may read a URL, for example in logs. Only streams and WebSockets in a browser need a ticket.
        let socket = is_sign_in_socket(path);
        if !known || !(socket || path.ends_with("/events") || path.ends_with("/events/stream")) {
            return Err(ApiError::invalid(
                format!("/paths/{index}"),
                "expected a path without a query: a stream below /v1 that ends with /events/stream or /events, or the WebSocket of a sign-in",
            ));
        }
        if socket && !request.by.scopes.contains(Scope::Admin) {
            return Err(AccessError::MissingScope(Scope::Admin).into());
        }
    }
    let (tickets, holder) = (
        request.gateway.policy.tickets().clone(),
        request.by.credential().verified().clone(),
    );
    let issued = request
        .gateway
        .shutdown
        .spawn_blocking(move || tickets.issue(&holder, paths))
        .await;
    let issued = issued
        .map_err(ApiError::internal)?
        .map_err(ApiError::internal)?;
    let (author, now) = (request.by.author(), request.gateway.ids.now());
    request
        .gateway
        .audit
        .counted()
        .by_key(&author, Counted::TicketCreated, now);
    let ticket = Ticket {
        ticket: issued.ticket,
        expires_at: issued.expires_at,
    };
    Ok((StatusCode::CREATED, Json(ticket)).into_response())
}

/// Whether the path is `/v1/agents/{agent}/auth/terminals/{signIn}`.
fn is_sign_in_socket(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    let part = |expected: Option<&str>, got: Option<&str>| {
        got.is_some_and(|got| expected.is_none_or(|it| it == got))
    };
    [
        Some("v1"),
        Some("agents"),
        None,
        Some("auth"),
        Some("terminals"),
        None,
    ]
    .into_iter()
    .all(|expected| part(expected, parts.next()))
        && parts.next().is_none()
}
