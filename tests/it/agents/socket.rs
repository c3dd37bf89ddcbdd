//! A real WebSocket client at a sign-in's terminal.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::support::Gateway;
use crate::support::gateway::KEY;

const WAIT: Duration = Duration::from_secs(20);

pub(crate) struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// All that was shown.
    pub(crate) shown: String,
}

/// Offers a sign-in in a terminal. Returns the path of its socket.
pub(crate) async fn offered(gateway: &Gateway) -> String {
    let answer = gateway
        .posted("/v1/agents/fake/auth", &[], &json!({ "methodId": "shell" }))
        .await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let url = answer.body["url"].as_str().expect("a path").to_owned();
    assert_eq!(answer.header("location"), Some(&*url));
    url
}

impl Socket {
    /// With the admin key.
    pub(crate) async fn open(gateway: &Gateway, path: &str) -> Self {
        let key = format!("Bearer {KEY}");
        Self::connect(gateway, path, &[("authorization", &key)])
            .await
            .expect("a socket")
    }

    /// The status and the problem of an answer that is no socket.
    pub(crate) async fn connect(
        gateway: &Gateway,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, (StatusCode, Value)> {
        let url = format!("{}{path}", gateway.url.replace("http://", "ws://"));
        let mut request = url.into_client_request().expect("a URL");
        for (name, value) in headers {
            request
                .headers_mut()
                .insert(*name, value.parse().expect("a value"));
        }
        match tokio::time::timeout(WAIT, connect_async(request))
            .await
            .expect("in time")
        {
            Ok((stream, _)) => Ok(Self {
                stream,
                shown: String::new(),
            }),
            Err(Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err((
                    response.status(),
                    serde_json::from_slice(body).unwrap_or_default(),
                ))
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn types(&mut self, text: &str) {
        self.stream
            .send(Message::binary(text.as_bytes().to_vec()))
            .await
            .expect("it takes it");
    }

    pub(crate) async fn says(&mut self, text: &str) {
        self.stream
            .send(Message::text(text))
            .await
            .expect("it takes it");
    }

    /// The next text message. Stores the output before it. `None` after the end of the socket.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            match tokio::time::timeout(WAIT, self.stream.next())
                .await
                .expect("in time")
            {
                Some(Ok(Message::Binary(bytes))) => {
                    self.shown.push_str(&String::from_utf8_lossy(&bytes));
                }
                Some(Ok(Message::Text(text))) => {
                    return Some(serde_json::from_str(&text).expect("JSON"));
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Reads until this was shown.
    pub(crate) async fn until(&mut self, text: &str) {
        while !self.shown.contains(text) {
            match tokio::time::timeout(WAIT, self.stream.next())
                .await
                .expect("in time")
            {
                Some(Ok(Message::Binary(bytes))) => {
                    self.shown.push_str(&String::from_utf8_lossy(&bytes));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("{other:?} after {:?}", self.shown),
            }
        }
    }

    pub(crate) async fn close(mut self) {
        self.stream.close(None).await.expect("it closes");
    }
}
