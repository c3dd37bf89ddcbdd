//! A client of `/acp` over a WebSocket.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::raw::initialize;
use crate::support::Gateway;
use crate::support::gateway::KEY;

const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// The selected subprotocol.
    pub(super) protocol: Option<String>,
    /// The id of the connection.
    pub(super) connection: String,
}

impl Socket {
    /// The error is the status of the response.
    pub(super) async fn connect_without_key(
        gateway: &Gateway,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        let url = format!("{}{path}", gateway.url.replacen("http", "ws", 1));
        let mut request = url.into_client_request().expect("a request");
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).expect("a value");
            request
                .headers_mut()
                .insert(HeaderName::from_static(name), value);
        }
        match connect_async(request).await {
            Ok((stream, response)) => {
                let header = |name: &str| {
                    response
                        .headers()
                        .get(name)
                        .map(|value| value.to_str().expect("ASCII").to_owned())
                };
                let protocol = header("sec-websocket-protocol");
                let connection = header("acp-connection-id");
                Ok(Self {
                    stream,
                    protocol,
                    connection: connection.unwrap_or_default(),
                })
            }
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) async fn connect(
        gateway: &Gateway,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Self {
        let bearer = format!("Bearer {KEY}");
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        Self::connect_without_key(gateway, path, &all)
            .await
            .expect("it opens")
    }

    /// An initialized connection.
    pub(super) async fn open(
        gateway: &Gateway,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Self {
        let mut socket = Self::connect(gateway, path, headers).await;
        socket.send(&initialize(0, &json!({}))).await;
        assert_eq!(socket.next().await["result"]["protocolVersion"], 1);
        socket
    }

    pub(super) async fn raw(&mut self, message: Message) {
        self.stream.send(message).await.expect("the socket is open");
    }

    pub(super) async fn send(&mut self, message: &Value) {
        self.raw(Message::text(message.to_string())).await;
    }

    async fn frame(&mut self) -> Message {
        let frame = timeout(PATIENCE, self.stream.next())
            .await
            .expect("a frame in time");
        frame.expect("the socket is open").expect("a frame")
    }

    /// The next message: a text frame with one JSON value.
    pub(super) async fn next(&mut self) -> Value {
        loop {
            match self.frame().await {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("no message: {other:?}"),
            }
        }
    }

    pub(super) async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            messages.push(self.next().await);
            if messages.last().is_some_and(&fits) {
                return messages;
            }
        }
    }

    /// The code with which the gateway closes the socket.
    pub(super) async fn closed(&mut self) -> Option<u16> {
        loop {
            match self.frame().await {
                Message::Close(frame) => return frame.map(|frame| frame.code.into()),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("not closed: {other:?}"),
            }
        }
    }

    /// A new session.
    pub(super) async fn session(&mut self) -> String {
        let params = json!({ "cwd": "", "mcpServers": [] });
        self.send(
            &json!({ "jsonrpc": "2.0", "id": "new", "method": "session/new", "params": params }),
        )
        .await;
        let response = self
            .until(|message| message["id"] == "new")
            .await
            .pop()
            .expect("the response");
        response["result"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{response}"))
            .to_owned()
    }
}
