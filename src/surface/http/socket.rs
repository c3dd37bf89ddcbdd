//! The start of a WebSocket, and its end by the gateway.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use tokio::time::timeout;
use tracing::{Instrument, Span};

use base::shutdown::Shutdown;

/// The size of a reason in a close frame (RFC 6455, section 5.5).
const MAX_REASON_BYTES: usize = 123;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Accepts an upgrade, and runs the socket in a task.
pub(crate) fn accept_socket<F: Future<Output = ()> + Send + 'static>(
    shutdown: Shutdown,
    upgrade: WebSocketUpgrade,
    max_message_bytes: usize,
    run: impl FnOnce(WebSocket) -> F + Send + 'static,
) -> Response {
    let upgrade = upgrade
        .max_message_size(max_message_bytes)
        .max_frame_size(max_message_bytes);
    // The log lines of the socket name the request that opened it.
    let span = Span::current();
    // The upgrade runs in an untracked task. Only the tracked task makes a stop wait for the socket.
    upgrade.on_upgrade(move |socket| async move {
        drop(shutdown.spawn_client(run(socket).instrument(span)));
    })
}

/// Sends the last messages of a socket. A client that does not accept them in time counts as disconnected.
pub(crate) async fn send_last(socket: &mut WebSocket, messages: impl IntoIterator<Item = Message>) {
    let send = async {
        for message in messages {
            socket.send(message).await?;
        }
        Ok::<_, axum::Error>(())
    };
    let _ = timeout(CLOSE_TIMEOUT, send).await;
}

pub(crate) fn close_frame(code: u16, reason: &str) -> Message {
    Message::Close(Some(CloseFrame {
        code,
        reason: reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].into(),
    }))
}
