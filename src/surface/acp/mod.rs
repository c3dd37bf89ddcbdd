//! The remote transport of ACP at `/acp` and `/acp/{agent}`: HTTP with Server-Sent Events, and WebSocket.
//!
//! The module owns connections, the JSON-RPC messages of clients, and the messages to them. Events of a session become
//! messages in `projector`; responses of the gateway wait in an outbox. A connection stores nothing that a session needs:
//! its end stops no turn. The module must not know the store or processes.
//!
//! Read in this order:
//! 1. `client`, `session_view`, `connection`: a client, and the sessions that it follows.
//! 2. `request`, `http`, `socket`, `initialize`: requests, sockets, and the start of a connection.
//! 3. `caller`, `methods`, `attach`: the messages of a client.
//! 4. `projector`, `delivery`: the messages to a client, and their order.
//! 5. `message`: JSON-RPC messages and errors.

mod attach;
mod caller;
mod client;
mod connection;
mod delivery;
mod http;
mod initialize;
mod message;
mod methods;
mod projector;
mod request;
mod session_view;
mod socket;

use std::sync::Arc;

use ::http::StatusCode;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;

use self::connection::AcpState;
use self::request::TransportError;
use crate::surface::http as shared;

/// The routes, with their own admission and error format.
pub(super) fn router(shared: &shared::AppState) -> Router<shared::AppState> {
    let app = AcpState {
        shared: shared.clone(),
        connections: Arc::default(),
    };
    let route = get(http::get).post(http::post).delete(http::delete);
    Router::new()
        .route("/acp", route.clone().fallback(method_not_allowed))
        .route("/acp/{agent}", route.fallback(method_not_allowed))
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(from_fn_with_state(app.clone(), admit))
        .with_state(app)
}

async fn method_not_allowed() -> TransportError {
    TransportError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "use POST, GET, DELETE or a WebSocket",
    )
}

/// Admits the request, or responds with the reason why it is not admitted.
async fn admit(State(app): State<AcpState>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match app.requests.admit(&mut parts).await {
        Ok(None) => next.run(Request::from_parts(parts, body)).await,
        Ok(Some(response)) => response,
        Err(error) => TransportError::from(error).into_response(),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature is that of the panic layer"
)]
fn panic_response(panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .unwrap_or("(the panic message is not a literal)");
    tracing::error!(panic = text, "a handler of /acp panicked");
    TransportError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal error; the gateway log has the details",
    )
    .into_response()
}
