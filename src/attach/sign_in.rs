//! The sign-in to an agent of the gateway, in the terminal of the person: a client of the REST route and its WebSocket.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::SinkExt as _;
use http::header::{AUTHORIZATION, LOCATION};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_tungstenite::tungstenite::Message;

use super::client::{GatewayClient, RequestError, Target, read, request, with_json, within};
use super::raw_terminal::RawTerminal;
use crate::outgoing::{Client, WebSocket, WebSocketError, open_websocket};
use crate::types::text::strip_controls;

/// The time for each request. A sign-in can wait for the first start of the agent.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(5);
/// The gateway sends pings more often.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(2);
/// The time for a message to the gateway.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
const INPUT_BYTES: usize = 4096;
/// The maximum size of a message of the gateway.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// A sign-in of an agent. `target` has the URL of the gateway.
#[derive(Debug)]
pub struct SignIn {
    pub http: Client,
    pub target: Target,
    /// The agent. `None`: the only one.
    pub agent: Option<String>,
    pub method: String,
}

#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    #[error("a sign-in needs a terminal as stdin and stdout")]
    NoTerminal(#[source] io::Error),
    #[error("could not use the signals of the process")]
    Signals(#[source] io::Error),
    #[error("the gateway has several agents: name one with --agent NAME")]
    SeveralAgents,
    #[error("the gateway did not accept the sign-in: {0}")]
    Rejected(String),
    #[error("the key has no scope `admin`, which a sign-in needs: use another key")]
    Forbidden,
    #[error("no connection to the gateway: {0}")]
    Connection(String),
    #[error("the gateway ended the sign-in: {0}")]
    Ended(String),
    #[error("the sign-in was cancelled")]
    Cancelled,
}

impl From<RequestError> for SignInError {
    fn from(error: RequestError) -> Self {
        Self::Connection(error.to_string())
    }
}

impl SignIn {
    /// Runs the sign-in. Returns the exit code of the agent's command. `stop` ends it.
    pub async fn run(
        self,
        terminal: impl AsFd,
        (input, output): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
        stop: impl Future<Output = ()>,
    ) -> Result<u8, SignInError> {
        rustix::termios::tcgetattr(&terminal)
            .map_err(|error| SignInError::NoTerminal(error.into()))?;
        let client = GatewayClient::new(self.http.clone());
        let Some(path) = self.offer(&client).await? else {
            return Ok(0);
        };
        let resized = signal(SignalKind::window_change()).map_err(SignInError::Signals)?;
        let terminal = RawTerminal::enter(terminal).map_err(SignInError::NoTerminal)?;
        let socket = self.connect(&client, &path, terminal.size()).await?;
        let relay = Relay {
            socket,
            terminal,
            resized,
        };
        tokio::select! {
            ended = relay.run(input, output) => ended,
            () = stop => Err(SignInError::Cancelled),
        }
    }

    fn url(&self, path: &str) -> Result<Uri, SignInError> {
        let base = self.target.url.to_string();
        let url = format!("{}{path}", base.trim_end_matches('/'));
        url.parse()
            .map_err(|_| SignInError::Connection("the gateway sent an invalid path".to_owned()))
    }

    fn target(&self, path: &str) -> Result<Target, SignInError> {
        Ok(Target {
            url: self.url(path)?,
            authorization: self.target.authorization.clone(),
        })
    }

    /// A path below the URL of the gateway. A gateway that knows its public URL names its whole path.
    fn below_base<'a>(&self, path: &'a str) -> &'a str {
        let base = self.target.url.path().trim_end_matches('/');
        path.strip_prefix(base)
            .filter(|rest| rest.starts_with('/'))
            .unwrap_or(path)
    }

    /// Asks for the terminal. Returns the path of its socket, or `None` if the method needs no terminal.
    async fn offer(&self, client: &GatewayClient) -> Result<Option<String>, SignInError> {
        let agent = match &self.agent {
            Some(agent) => agent.clone(),
            None => self.only_agent(client).await?,
        };
        let target = self.target(&format!("/v1/agents/{agent}/auth"))?;
        let body = json!({ "methodId": self.method }).to_string().into();
        let request = with_json(request(Method::POST, &target), body);
        let response = within(REQUEST_TIMEOUT, client.send(request)).await?;
        match response.status() {
            StatusCode::NO_CONTENT => Ok(None),
            StatusCode::CREATED => {
                let path = response
                    .headers()
                    .get(LOCATION)
                    .and_then(|path| path.to_str().ok());
                let path = path
                    .filter(|path| path.starts_with('/'))
                    .map(|path| self.below_base(path));
                path.map(|path| Some(path.to_owned()))
                    .ok_or_else(unexpected)
            }
            _ => Err(rejected(response).await),
        }
    }

    async fn only_agent(&self, client: &GatewayClient) -> Result<String, SignInError> {
        #[derive(Deserialize)]
        struct Agents {
            agents: Vec<Agent>,
        }
        #[derive(Deserialize)]
        struct Agent {
            name: String,
        }
        let request = request(Method::GET, &self.target("/v1/agents")?);
        let response = within(REQUEST_TIMEOUT, client.send(request)).await?;
        if response.status() != StatusCode::OK {
            return Err(rejected(response).await);
        }
        let body = within(REQUEST_TIMEOUT, read(response)).await?;
        let Agents { mut agents } = serde_json::from_slice(&body).map_err(|_| unexpected())?;
        match (agents.pop(), agents.is_empty()) {
            (Some(only), true) => Ok(only.name),
            _ => Err(SignInError::SeveralAgents),
        }
    }

    async fn connect(
        &self,
        client: &GatewayClient,
        path: &str,
        (cols, rows): (u16, u16),
    ) -> Result<WebSocket, SignInError> {
        let target = self.target(&format!("{path}?cols={cols}&rows={rows}"))?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, target.authorization.clone())]);
        let opened = open_websocket(client.http(), &target.url, headers, MAX_MESSAGE_BYTES);
        match timeout(REQUEST_TIMEOUT, opened)
            .await
            .map_err(|_| unexpected())?
        {
            Ok((socket, _)) => Ok(socket),
            Err(WebSocketError::Status { status, body }) => Err(rejection(status, &body)),
            Err(WebSocketError::Failed(reason)) => Err(SignInError::Connection(reason)),
        }
    }
}

/// The last message of the gateway.
#[derive(Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
enum Last {
    Exit {
        exit_code: Option<u8>,
        signal: Option<String>,
    },
    Problem {
        problem: Problem,
    },
    Shutdown,
}

#[derive(Deserialize)]
struct Problem {
    detail: Option<String>,
}

struct Relay {
    socket: WebSocket,
    terminal: RawTerminal,
    resized: Signal,
}

impl Relay {
    async fn run(
        mut self,
        mut input: impl AsyncRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
    ) -> Result<u8, SignInError> {
        let failed = |error: io::Error| SignInError::Connection(error.to_string());
        let mut typed = BytesMut::new();
        loop {
            typed.reserve(INPUT_BYTES);
            tokio::select! {
                read = input.read_buf(&mut typed) => {
                    if read.map_err(failed)? == 0 {
                        return Err(SignInError::Cancelled);
                    }
                    let bytes: Bytes = typed.split().freeze();
                    self.send(Message::Binary(bytes)).await?;
                }
                _ = self.resized.recv() => {
                    let (cols, rows) = self.terminal.size();
                    let resize = json!({ "type": "resize", "cols": cols, "rows": rows });
                    self.send(Message::Text(resize.to_string().into())).await?;
                }
                message = timeout(SILENCE_TIMEOUT, self.socket.next()) => match message {
                    Ok(Some(Ok(Message::Binary(bytes)))) => {
                        output.write_all(&bytes).await.map_err(failed)?;
                        output.flush().await.map_err(failed)?;
                    }
                    Ok(Some(Ok(Message::Text(text)))) => return ended(&text),
                    Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {}
                    Ok(Some(Err(error))) => return Err(SignInError::Connection(error.to_string())),
                    Ok(Some(Ok(Message::Close(_))) | None) => {
                        return Err(SignInError::Connection("the gateway closed the connection".to_owned()));
                    }
                    Err(_) => return Err(SignInError::Connection("the gateway is silent".to_owned())),
                },
            }
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), SignInError> {
        let sent = timeout(SEND_TIMEOUT, self.socket.send(message)).await;
        let sent =
            sent.map_err(|_| SignInError::Connection("the gateway does not read".to_owned()))?;
        sent.map_err(|error| SignInError::Connection(error.to_string()))
    }
}

fn ended(text: &str) -> Result<u8, SignInError> {
    match serde_json::from_str(text).map_err(|_| unexpected())? {
        Last::Exit {
            exit_code: Some(code),
            ..
        } => Ok(code),
        Last::Exit { signal, .. } => {
            let signal = signal.unwrap_or_default();
            Err(SignInError::Ended(format!(
                "a signal ended the command {}",
                strip_controls(&signal)
            )))
        }
        Last::Problem { problem } => {
            let detail = problem.detail.unwrap_or_default();
            Err(SignInError::Ended(strip_controls(&detail).into_owned()))
        }
        Last::Shutdown => Err(SignInError::Ended("the gateway stops".to_owned())),
    }
}

fn unexpected() -> SignInError {
    SignInError::Connection("the gateway sent an unexpected response".to_owned())
}

/// The error for a problem document.
async fn rejected(response: Response<Incoming>) -> SignInError {
    let status = response.status();
    let body = within(SEND_TIMEOUT, read(response))
        .await
        .unwrap_or_default();
    rejection(status, &body)
}

fn rejection(status: StatusCode, body: &[u8]) -> SignInError {
    if status == StatusCode::FORBIDDEN {
        return SignInError::Forbidden;
    }
    let detail = serde_json::from_slice::<Problem>(body)
        .ok()
        .and_then(|problem| problem.detail);
    let detail = detail.unwrap_or_else(|| status.to_string());
    SignInError::Rejected(strip_controls(&detail).into_owned())
}
