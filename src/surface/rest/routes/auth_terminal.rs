//! `/v1/agents/{agent}/auth/terminals/{signIn}`: a terminal for a sign-in, over a WebSocket.

use std::num::NonZeroU16;

use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;
use uuid::Uuid;

use crate::api::ProblemCode;
use crate::audit::SignInRecord;
use crate::server::ConnectionPermit;
use crate::surface::authorized::CanAdmin;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{ApiRequest, Params};
use crate::surface::rest::sign_in_socket::SignInSocket;
use crate::types::AgentName;

/// Opens the terminal of a sign-in as a WebSocket.
///
/// Binary messages carry the input and the output of the terminal. Text messages are JSON. The client sends
/// `{"type": "resize", "cols": 80, "rows": 24}`. The last message to the client is
/// `{"type": "exit", "exitCode": 0, "signal": null}`, `{"type": "problem", "problem": {..}}` or
/// `{"type": "shutdown"}`. Closing the socket ends the command.
#[utoipa::path(
    get,
    path = "/v1/agents/{agent}/auth/terminals/{signIn}",
    responses((status = 101, description = "The command runs; the connection is its terminal."))
)]
pub(super) async fn open_terminal(
    request: ApiRequest<CanAdmin, (AgentName, Uuid), Params>,
    held: Option<Extension<ConnectionPermit>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let ApiRequest {
        gateway,
        by,
        ids: (name, id),
        mut params,
        ..
    } = request;
    let spec = gateway
        .catalogue
        .agent(&name)
        .ok_or_else(ApiError::not_found)?;
    let mut characters = |name, default| {
        let given: Option<NonZeroU16> = params.parsed(name, "a number from 1 to 65535")?;
        Ok::<_, ApiError>(given.map_or(default, NonZeroU16::get))
    };
    let size = (characters("cols", 80)?, characters("rows", 24)?);
    params.finish()?;
    let Some(Extension(held)) = held else {
        return Err(ApiError::internal("the request has no connection permit"));
    };
    // An offer is valid for one connection. A request that is no WebSocket must not consume it.
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(_) if !gateway.pool().offers_sign_in(&name, &by.tenant, id) => {
            return Err(ApiError::not_found());
        }
        Err(rejection) => {
            let detail = format!(
                "this path requires a WebSocket upgrade: {}",
                rejection.body_text()
            );
            return Err(ApiError::new(ProblemCode::Malformed, detail));
        }
    };
    let guard = gateway.streams().acquire(&by)?;
    let opened = gateway
        .pool()
        .open_sign_in(&spec, &by.tenant, id, size)
        .await?;
    let sign_in = opened.ok_or_else(ApiError::not_found)?;
    tracing::info!(agent = %name, by = %by.id, "started a sign-in in a terminal");
    let record = SignInRecord::start(&gateway.audit, &by.author(), name, None);
    let (bytes, shutdown) = (
        gateway.limits.max_websocket_message_bytes,
        gateway.shutdown.clone(),
    );
    let admission = by.admission().clone();
    let sign_in_socket = SignInSocket {
        gateway,
        sign_in,
        record,
        admission,
        stream_guard: guard,
        connection_permit: held,
    };
    let upgrade = upgrade.max_message_size(bytes).max_frame_size(bytes);
    // The upgrade runs in an untracked task. Only the tracked task makes a stop wait for the socket.
    Ok(upgrade.on_upgrade(move |socket| async move {
        drop(shutdown.spawn_client(sign_in_socket.run(socket)));
    }))
}
