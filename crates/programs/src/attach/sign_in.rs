//! The sign-in to an agent of the gateway, in the terminal of the person: a client of the REST route and its WebSocket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::SinkExt as _;
use http::header::{AUTHORIZATION, LOCATION};
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::Incoming;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_tungstenite::tungstenite::Message;

use super::client::{RequestError, Target, read, request, with_json, within};
use base::types::text::strip_controls;
use outgoing::{Client, WebSocket, WebSocketError, open_websocket};

/// The time for each request. A sign-in can wait for the first start of the agent.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(5);
/// The gateway sends pings more often.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(2);
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
const INPUT_BYTES: usize = 4096;
const MAX_MESSAGE_BYTES: usize = 1 << 20;

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
        connection(error)
    }
}

impl SignIn {
    /// Runs the sign-in. Returns the exit code of the agent's command. `stop` ends it.
    pub async fn run(
        self,
        terminal: impl AsFd,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin,
        stop: impl Future<Output = ()>,
    ) -> Result<u8, SignInError> {
        tcgetattr(&terminal).map_err(|error| SignInError::NoTerminal(error.into()))?;
        let Some(path) = self.offer().await? else {
            return Ok(0);
        };
        let resized = signal(SignalKind::window_change()).map_err(SignInError::Signals)?;
        let terminal = RawTerminal::enter(terminal).map_err(SignInError::NoTerminal)?;
        let (cols, rows) = terminal.size();
        let target = self.target(&format!("{path}?cols={cols}&rows={rows}"))?;
        let socket = self.connect(&target).await?;
        tokio::select! {
            ended = relay(socket, &terminal, resized, input, output) => ended,
            () = stop => Err(SignInError::Cancelled),
        }
    }

    fn target(&self, path: &str) -> Result<Target, SignInError> {
        let base = self.target.url.to_string();
        let url = format!("{}{path}", base.trim_end_matches('/')).parse();
        Ok(Target {
            url: url.map_err(|_| connection("the gateway sent an invalid path"))?,
            authorization: self.target.authorization.clone(),
        })
    }

    /// A path below the URL of the gateway. A gateway that knows its public URL names its whole path.
    fn below_base<'a>(&self, path: &'a str) -> &'a str {
        let base = self.target.url.path().trim_end_matches('/');
        let rest = path.strip_prefix(base);
        rest.filter(|rest| rest.starts_with('/')).unwrap_or(path)
    }

    /// Asks for the terminal. Returns the path of its socket, or `None` if the method needs no terminal.
    async fn offer(&self) -> Result<Option<String>, SignInError> {
        let agent = match &self.agent {
            Some(agent) => agent.clone(),
            None => self.only_agent().await?,
        };
        let target = self.target(&format!("/v1/agents/{agent}/auth"))?;
        let body = json!({ "methodId": self.method }).to_string().into();
        let request = with_json(request(Method::POST, &target), body);
        let response = within(REQUEST_TIMEOUT, self.http.send(request)).await?;
        match response.status() {
            StatusCode::NO_CONTENT => Ok(None),
            StatusCode::CREATED => {
                let path = response.headers().get(LOCATION);
                let path = path.and_then(|path| path.to_str().ok());
                let path = path.filter(|path| path.starts_with('/'));
                let path = path.ok_or_else(unexpected)?;
                Ok(Some(self.below_base(path).to_owned()))
            }
            _ => Err(rejected(response).await),
        }
    }

    async fn only_agent(&self) -> Result<String, SignInError> {
        #[derive(Deserialize)]
        struct Agents {
            agents: Vec<Agent>,
        }
        #[derive(Deserialize)]
        struct Agent {
            name: String,
        }
        let request = request(Method::GET, &self.target("/v1/agents")?);
        let response = within(REQUEST_TIMEOUT, self.http.send(request)).await?;
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

    async fn connect(&self, target: &Target) -> Result<WebSocket, SignInError> {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, target.authorization.clone())]);
        let opened = open_websocket(&self.http, &target.url, headers, MAX_MESSAGE_BYTES);
        let opened = timeout(REQUEST_TIMEOUT, opened).await;
        match opened.map_err(|_| unexpected())? {
            Ok((socket, _)) => Ok(socket),
            Err(WebSocketError::Status { status, body }) => Err(rejection(status, &body)),
            Err(WebSocketError::Failed(reason)) => Err(SignInError::Connection(reason)),
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[serde(rename_all_fields = "camelCase")]
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

/// Passes input and output between the terminal and the socket until the command ends. Returns its exit code.
async fn relay(
    mut socket: WebSocket,
    terminal: &RawTerminal,
    mut resized: Signal,
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> Result<u8, SignInError> {
    let failed = connection::<io::Error>;
    let mut typed = BytesMut::new();
    loop {
        typed.reserve(INPUT_BYTES);
        tokio::select! {
            read = input.read_buf(&mut typed) => {
                if read.map_err(failed)? == 0 {
                    return Err(SignInError::Cancelled);
                }
                send(&mut socket, Message::Binary(typed.split().freeze())).await?;
            }
            _ = resized.recv() => {
                let (cols, rows) = terminal.size();
                let resize = json!({ "type": "resize", "cols": cols, "rows": rows });
                send(&mut socket, Message::Text(resize.to_string().into())).await?;
            }
            message = timeout(SILENCE_TIMEOUT, socket.next()) => match message {
                Ok(Some(Ok(Message::Binary(bytes)))) => {
                    output.write_all(&bytes).await.map_err(failed)?;
                    output.flush().await.map_err(failed)?;
                }
                Ok(Some(Ok(Message::Text(text)))) => return ended(&text),
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {}
                Ok(Some(Err(error))) => return Err(connection(error)),
                Ok(Some(Ok(Message::Close(_))) | None) => {
                    return Err(connection("the gateway closed the connection"));
                }
                Err(_) => return Err(connection("the gateway is silent")),
            },
        }
    }
}

async fn send(socket: &mut WebSocket, message: Message) -> Result<(), SignInError> {
    match timeout(SEND_TIMEOUT, socket.send(message)).await {
        Ok(sent) => sent.map_err(connection),
        Err(_) => Err(connection("the gateway does not read")),
    }
}

fn ended(text: &str) -> Result<u8, SignInError> {
    match serde_json::from_str(text).map_err(|_| unexpected())? {
        Last::Exit { exit_code, signal } => exit_code.ok_or_else(|| {
            let signal = signal.unwrap_or_default();
            let signal = strip_controls(&signal);
            SignInError::Ended(format!("a signal ended the command {signal}"))
        }),
        Last::Problem { problem } => {
            let detail = problem.detail.unwrap_or_default();
            Err(SignInError::Ended(strip_controls(&detail).into_owned()))
        }
        Last::Shutdown => Err(SignInError::Ended("the gateway stops".to_owned())),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of `map_err`")]
fn connection<E: ToString>(error: E) -> SignInError {
    SignInError::Connection(error.to_string())
}

fn unexpected() -> SignInError {
    connection("the gateway sent an unexpected response")
}

async fn rejected(response: Response<Incoming>) -> SignInError {
    let status = response.status();
    let body = within(SEND_TIMEOUT, read(response)).await;
    rejection(status, &body.unwrap_or_default())
}

fn rejection(status: StatusCode, body: &[u8]) -> SignInError {
    if status == StatusCode::FORBIDDEN {
        return SignInError::Forbidden;
    }
    let problem = serde_json::from_slice::<Problem>(body).ok();
    let detail = problem.and_then(|problem| problem.detail);
    let detail = detail.unwrap_or_else(|| status.to_string());
    SignInError::Rejected(strip_controls(&detail).into_owned())
}

/// On drop, restores the mode that the terminal had before the sign-in, also after a panic.
pub(super) struct RawTerminal {
    terminal: OwnedFd,
    previous: Termios,
}

impl RawTerminal {
    pub(super) fn enter(terminal: impl AsFd) -> io::Result<Self> {
        let terminal = terminal.as_fd().try_clone_to_owned()?;
        let previous = tcgetattr(&terminal)?;
        let mut raw = previous.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, previous })
    }

    /// The columns and rows. 80 and 24 if the terminal reports no size.
    pub(super) fn size(&self) -> (u16, u16) {
        match tcgetwinsize(&self.terminal) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            _ => (80, 24),
        }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(&self.terminal, OptionalActions::Now, &self.previous) {
            tracing::warn!(%error, "could not restore the terminal: run `reset`");
        }
    }
}
