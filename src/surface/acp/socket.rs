//! `/acp` over a WebSocket: one JSON-RPC message in each text frame, in both directions.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::ws::{Message as Frame, WebSocket, WebSocketUpgrade, close_code};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Instrument;
use tracing::field::Empty;

use super::caller::Caller;
use super::connection::{Connection, MAX_SESSIONS, OpenStream};
use super::delivery::{MessageSink, SessionDelivery, deliver_responses};
use super::initialize::open_connection;
use super::message::{self, is_valid_id};
use super::request::{Head, TransportError, parse};
use super::session_view::SessionView;
use crate::server::{BodyCharge, ConnectionPermit};
use crate::stream::StreamGuard;
use crate::surface::http::{accept_socket, ascii, close_frame, send_last};
use wire::acp::headers::CONNECTION_ID;
use wire::acp::method;
use wire::jsonrpc::Message;

/// The subprotocol of ACP, which a client can offer.
const SUBPROTOCOL: &str = "acp.v1";
const QUEUED_MESSAGES: usize = 64;
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay of a message above the rate of the user.
const OVER_RATE_DELAY: Duration = Duration::from_secs(1);

/// Accepts the upgrade. The connection gets its id with the response, as the transport requires.
pub(super) fn open(
    head: Head,
    permit: Option<Extension<ConnectionPermit>>,
    charge: Option<Extension<Arc<BodyCharge>>>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, TransportError> {
    let guard = head.stream_guard()?;
    let permit = permit.map(|Extension(permit)| permit);
    if let (Some(permit), Some(Extension(charge))) = (&permit, charge) {
        permit.charge_messages(charge);
    }
    let id = head.app.ids.uuid().to_string();
    let id_header = [(CONNECTION_ID, ascii(&*id))];
    let shutdown = head.app.shutdown.clone();
    let bytes = head.app.limits.sessions.max_prompt_bytes;
    let socket = AcpSocket {
        head,
        id,
        _guard: guard,
        permit,
    };
    // The server may only select a subprotocol that the client has offered.
    let upgrade = upgrade.protocols([SUBPROTOCOL]);
    let response = accept_socket(shutdown, upgrade, bytes, |stream| socket.run(stream));
    Ok((id_header, response).into_response())
}

struct AcpSocket {
    head: Head,
    id: String,
    _guard: StreamGuard,
    /// Counts the connection while it is open. Absent in tests without a listener.
    permit: Option<ConnectionPermit>,
}

/// The reason for the end of the socket: the close code and a text for the client. `None`: the client has disconnected.
type End = Option<(u16, &'static str)>;

/// The lines that the client has sent. A frame can contain several lines.
struct Incoming<'a> {
    socket: &'a mut WebSocket,
    /// The rest of the last frame.
    frame: Bytes,
    /// Holds the memory of the last frame.
    permit: Option<&'a ConnectionPermit>,
    /// The memory of the last frame is charged.
    holds_frame: bool,
}

impl Incoming<'_> {
    /// The next line that is not empty. `None`: the client has disconnected. Cancel safe.
    async fn line(&mut self) -> Option<Bytes> {
        loop {
            while !self.frame.is_empty() {
                let end =
                    memchr::memchr(b'\n', &self.frame).map_or(self.frame.len(), |end| end + 1);
                let line = self.frame.split_to(end);
                if !line.trim_ascii().is_empty() {
                    return Some(line);
                }
            }
            if std::mem::take(&mut self.holds_frame)
                && let Some(permit) = self.permit
            {
                permit.message_handled();
            }
            match self.socket.recv().await?.ok()? {
                Frame::Text(text) => {
                    self.frame = text.into();
                    self.holds_frame = true;
                }
                Frame::Binary(bytes) => {
                    self.frame = bytes;
                    self.holds_frame = true;
                }
                Frame::Ping(payload) | Frame::Pong(payload) => {
                    if let Some(permit) = self.permit {
                        permit.control_frame_handled(&payload);
                    }
                }
                Frame::Close(_) => return None,
            }
        }
    }

    async fn send(&mut self, message: Bytes) -> Result<(), End> {
        // Invalid UTF-8 is impossible: messages are JSON of the gateway and lines of agents that were checked.
        let text = message
            .try_into()
            .map_err(|_| Some((close_code::ERROR, "internal error")))?;
        self.socket.send(Frame::Text(text)).await.map_err(|_| None)
    }
}

impl AcpSocket {
    async fn run(self, mut socket: WebSocket) {
        let mut incoming = Incoming {
            socket: &mut socket,
            frame: Bytes::new(),
            permit: self.permit.as_ref(),
            holds_frame: false,
        };
        let Err(end) = self.serve(&mut incoming).await;
        let permit = self.permit.as_ref();
        let exceeded = permit.and_then(ConnectionPermit::messages_exceeded);
        let exceeded = exceeded.map(|exceeded| (close_code::AGAIN, exceeded.into()));
        let end = exceeded.or(end);
        if let Some((code, reason)) = end {
            send_last(&mut socket, [close_frame(code, reason)]).await;
        }
    }

    async fn serve(&self, incoming: &mut Incoming<'_>) -> Result<std::convert::Infallible, End> {
        let (new_views, mut views) = mpsc::channel(MAX_SESSIONS);
        let connection = self.initialize(incoming, new_views).await?;
        let _removed = RemoveOnDrop {
            head: &self.head,
            connection: Arc::clone(&connection),
        };
        let _open = OpenStream::new(&connection);
        let (outgoing, mut messages) = mpsc::channel(QUEUED_MESSAGES);
        self.spawn_responses(&connection, outgoing.clone());
        let app = &self.head.app;
        let caller = self.head.caller(Arc::clone(&connection));
        let mut ping = tokio::time::interval(app.limits.stream.keep_alive_interval);
        let mut key_ended = std::pin::pin!(self.head.by.admission().wait_key_ended());
        loop {
            tokio::select! {
                () = key_ended.as_mut() => return Err(Some((close_code::POLICY, "the key has ended"))),
                () = app.shutdown.closing_started() => return Err(Some((close_code::AWAY, "the gateway is shutting down"))),
                () = connection.wait_closed() => return Err(Some((close_code::POLICY, "the connection was closed"))),
                Some(view) = views.recv() => self.spawn_session(&connection, view, outgoing.clone()),
                Some(message) = messages.recv() => incoming.send(message).await?,
                line = incoming.line() => {
                    if let Some(response) = self.handle(&caller, &line.ok_or(None)?).await {
                        incoming.send(response).await?;
                    }
                }
                _ = ping.tick() => {
                    incoming.socket.send(Frame::Ping(Bytes::new())).await.map_err(|_| None)?;
                }
            }
        }
    }

    /// Waits for `initialize`, which must be the first message.
    async fn initialize(
        &self,
        incoming: &mut Incoming<'_>,
        new_views: mpsc::Sender<Arc<SessionView>>,
    ) -> Result<Arc<Connection>, End> {
        let deadline = Instant::now() + INITIALIZE_TIMEOUT;
        loop {
            let line = tokio::time::timeout_at(deadline, incoming.line()).await;
            let line = line
                .map_err(|_| Some((close_code::PROTOCOL, "initialize did not arrive in time")))?;
            let line = line.ok_or(None)?;
            let (id, params) = match parse(&line) {
                Ok(Message::Request { id, method, params })
                    if *method == *method::INITIALIZE && is_valid_id(&id) =>
                {
                    (id, params)
                }
                // Some clients send a ping at any time.
                Ok(Message::Notification { method, .. }) if method.starts_with("$/") => continue,
                _ => {
                    let reason = "the first message must be initialize";
                    return Err(Some((close_code::PROTOCOL, reason)));
                }
            };
            let id_of_connection = self.id.as_str().into();
            let opened = open_connection(&self.head, &params, id_of_connection, Some(new_views));
            return match opened.await {
                Ok((connection, result)) => {
                    incoming.send(message::response(&id, Ok(&result))).await?;
                    Ok(connection)
                }
                Err(failure) => {
                    incoming.send(message::response(&id, Err(&failure))).await?;
                    Err(Some((close_code::NORMAL, "initialize failed")))
                }
            };
        }
    }

    /// Handles a line. Returns an error response if the line is not a message or exceeds the rate limit of the
    /// user.
    async fn handle(&self, caller: &Caller, line: &[u8]) -> Option<Bytes> {
        let app = &self.head.app;
        let exceeded = app.requests.rates.check_request(&caller.by).err();
        if exceeded.is_some() {
            // The socket reads no message during the delay.
            tokio::time::sleep(OVER_RATE_DELAY).await;
        }
        let message = match parse(line) {
            Ok(message) => message,
            Err(error) => return Some(error.message()),
        };
        // A cancel or an answer must not be lost.
        if let (Some(limit), Message::Request { id, .. }) = (exceeded, &message)
            && is_valid_id(id)
        {
            return Some(message::response(id, Err(&limit.into())));
        }
        // A socket is one request, and its messages can concern several sessions.
        let span = tracing::error_span!("message", session = Empty);
        caller.handle(message).instrument(span).await;
        None
    }

    fn spawn_responses(&self, connection: &Arc<Connection>, outgoing: mpsc::Sender<Bytes>) {
        let connection = Arc::clone(connection);
        let keep_alive = self.head.app.limits.stream.keep_alive_interval;
        let mut sink = SocketSink {
            outgoing,
            pending: Vec::new(),
        };
        let deliver = async move {
            tokio::select! {
                never = deliver_responses(&connection, None, keep_alive, &mut sink) => match never {},
                () = connection.wait_closed() => {}
            }
        };
        let shutdown = &self.head.app.shutdown;
        drop(shutdown.spawn_client(deliver.in_current_span()));
    }

    fn spawn_session(
        &self,
        connection: &Arc<Connection>,
        view: Arc<SessionView>,
        outgoing: mpsc::Sender<Bytes>,
    ) {
        let app = &self.head.app;
        let delivery = SessionDelivery {
            connection: Arc::clone(connection),
            view: Arc::clone(&view),
            epoch: None,
            store_epoch: app.epoch(),
            from: None,
            keep_alive: app.limits.stream.keep_alive_interval,
        };
        let connection = Arc::clone(connection);
        let mut sink = SocketSink {
            outgoing,
            pending: Vec::new(),
        };
        let deliver = async move {
            tokio::select! {
                never = delivery.run(&mut sink) => match never {},
                () = connection.wait_closed() => {}
                () = view.wait_ended() => {}
            }
        };
        drop(app.shutdown.spawn_client(deliver.in_current_span()));
    }
}

/// Removes the connection when the socket ends, so that its deliveries end too.
struct RemoveOnDrop<'a> {
    head: &'a Head,
    connection: Arc<Connection>,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        self.head.app.connections.remove(&self.connection);
    }
}

struct SocketSink {
    outgoing: mpsc::Sender<Bytes>,
    pending: Vec<Bytes>,
}

impl MessageSink for SocketSink {
    fn push(&mut self, _: &str, message: Bytes) {
        self.pending.push(message);
    }

    async fn flush(&mut self) {
        for message in self.pending.drain(..) {
            // The channel is closed only after the socket has ended, and then this task ends too.
            let _ = self.outgoing.send(message).await;
        }
    }

    /// Sends nothing, because the loop of the socket sends pings.
    async fn keep_alive(&mut self) {}
}
