//! The opening handshake of a WebSocket (RFC 6455).

use http::{HeaderMap, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Error};
use tower::{Service as _, ServiceExt as _};

use super::client::Client;
use super::connector::Stream;
use crate::telemetry::ErrorChain;

/// An open WebSocket.
pub type WebSocket = WebSocketStream<TokioIo<Stream>>;

/// A WebSocket that did not open. The text names no URL and no credentials.
#[derive(Debug, thiserror::Error)]
pub enum WebSocketError {
    /// The server answered with another status, and the start of a body.
    #[error("the server answered the WebSocket request with {status}")]
    Status { status: StatusCode, body: Vec<u8> },
    #[error("{0}")]
    Failed(String),
}

/// Opens a WebSocket to a URL with the scheme `ws`, `wss`, `http` or `https`. The caller limits the time.
///
/// Returns the socket with the headers of the response.
pub async fn open_websocket(
    client: &Client,
    url: &Uri,
    headers: HeaderMap,
    max_message_bytes: usize,
) -> Result<(WebSocket, HeaderMap), WebSocketError> {
    let is_secure = matches!(url.scheme_str(), Some("https" | "wss"));
    let with_scheme = |scheme: &str| -> Result<Uri, WebSocketError> {
        let mut parts = url.clone().into_parts();
        parts.scheme = scheme.parse().ok();
        Uri::from_parts(parts).map_err(|error| WebSocketError::Failed(error.to_string()))
    };
    let mut connector = client.connector();
    let target = with_scheme(if is_secure { "https" } else { "http" })?;
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        WebSocketError::Failed(ErrorChain(&*error).to_string())
    };
    let stream = connector
        .ready()
        .await
        .map_err(failed)?
        .call(target)
        .await
        .map_err(failed)?;
    let mut request = with_scheme(if is_secure { "wss" } else { "ws" })?.into_client_request()?;
    request.headers_mut().extend(headers);
    let config = WebSocketConfig::default()
        .max_message_size(Some(max_message_bytes))
        .max_frame_size(Some(max_message_bytes));
    let opened =
        tokio_tungstenite::client_async_with_config(request, TokioIo::new(stream), Some(config))
            .await;
    let (socket, response) = opened?;
    Ok((socket, response.into_parts().0.headers))
}

impl From<tungstenite::Error> for WebSocketError {
    fn from(error: tungstenite::Error) -> Self {
        match error {
            Error::Http(response) => {
                let (parts, body) = response.into_parts();
                Self::Status {
                    status: parts.status,
                    body: body.unwrap_or_default(),
                }
            }
            error => Self::Failed(ErrorChain(&error).to_string()),
        }
    }
}
