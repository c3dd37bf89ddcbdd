//! `/v1/tickets`: short-lived credentials for a URL, because an `EventSource` cannot send headers.

use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;

use crate::surface::http::{AccessError, ApiError, ApiRequest, CanRead, JsonBody};
use base::types::{PublicPath, Scope};
use events::api::{CreateTicket, ProblemCode, Ticket};
use log::audit::Counted;

/// Creates a ticket, which authenticates GET requests for streams and terminals of the given paths.
///
/// Send the ticket as `?ticket=`. An `EventSource` or a WebSocket in a browser cannot send an `Authorization`
/// header.
#[utoipa::path(post, path = "/v1/tickets", request_body = CreateTicket, responses(
    (status = 201, body = Ticket, description = "The ticket. No other response contains it."),
))]
pub(super) async fn create_ticket(
    request: ApiRequest<CanRead>,
    public: Option<Extension<PublicPath>>,
    body: JsonBody<CreateTicket>,
) -> Result<Response, ApiError> {
    // Otherwise the holder of a ticket could renew it for ever.
    if request.by.credential().is_ticket() {
        let detail = "creating a ticket requires a key, not a ticket";
        return Err(ApiError::new(ProblemCode::Forbidden, detail));
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
            let detail = "expected a path without a query: a stream below /v1 that ends with /events/stream or /events, or the WebSocket of a sign-in";
            return Err(ApiError::invalid(format!("/paths/{index}"), detail));
        }
        if socket && !request.by.scopes.contains(Scope::Admin) {
            return Err(AccessError::MissingScope(Scope::Admin).into());
        }
    }
    let gateway = &request.gateway;
    let tickets = gateway.policy.tickets().clone();
    let holder = request.by.credential().verified().clone();
    let issue = move || tickets.issue(&holder, paths);
    let issued = gateway.shutdown.spawn_blocking(issue).await;
    let issued = issued.map_err(ApiError::internal)?;
    let issued = issued.map_err(ApiError::internal)?;
    let counted = gateway.audit.counted();
    let now = gateway.ids.now();
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
